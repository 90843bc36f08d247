"""How options are declared: one, or a kind of them that commands are given as one value."""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Command = TypeVar("Command", bound=Callable[..., Any])
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

# Where the context of a command keeps the path of its configuration file.
CONFIG_FILE = "shaperouter.config_file"

# The value of options that can be turned off.
OFF = "off"


class Option(click.Option):
    """An option whose errors name where the wrong value stands."""

    def get_error_hint(self, ctx: click.Context | None) -> str:
        """The variable or the key of the file, where the value is from there."""
        source = ctx.get_parameter_source(str(self.name)) if ctx else None
        name = self.opts[0]
        if ctx and source is click.core.ParameterSource.DEFAULT_MAP:
            return f"'{name.removeprefix('--')}' in {ctx.meta[CONFIG_FILE]}"
        if source is click.core.ParameterSource.ENVIRONMENT:
            return f"the variable '{self.envvar}'"
        if source is click.core.ParameterSource.COMMANDLINE:
            return f"'{name}'"
        return super().get_error_hint(ctx)


def option(*names: str, **settings: Any) -> Callable[[Command], Command]:
    """An option that is also a SHAPEROUTER_ variable, and says so and its default in --help."""
    variable = "SHAPEROUTER_" + names[0].removeprefix("--").replace("-", "_").upper()
    defaults: dict[str, Any] = {
        "cls": Option,
        "envvar": variable,
        "show_envvar": True,
        "show_default": True,
    }
    return click.option(*names, **(defaults | settings))


def options_of(kind: type[Any], argument: str, *options: Decorator) -> Decorator:
    """Options of one kind, in the order in which --help shows them.

    Args:
        kind: A dataclass, of which commands are given one; its fields are named as the options.
        argument: Name of the command's argument.
        options: The options.
    """
    names = [field.name for field in dataclasses.fields(kind)]

    def apply(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def collect(**values: Any) -> Any:
            values[argument] = kind(**{name: values.pop(name) for name in names})
            return command(**values)

        collected: Callable[..., Any] = collect
        for each in reversed(options):
            collected = each(collected)
        return collected

    return apply


def as_arguments(values: "DataclassInstance") -> Iterator[str]:
    """The arguments by which another process gets the same values of one kind of options."""
    for field in dataclasses.fields(values):
        value = getattr(values, field.name)
        for each in value if isinstance(value, tuple) else (value,):
            yield f"--{field.name.replace('_', '-')}={each}"
