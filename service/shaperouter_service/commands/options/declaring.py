"""Declaring options: single ones, and groups that a command receives as one value."""

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
    """An option whose errors name the source of the wrong value."""

    def get_error_hint(self, ctx: click.Context | None) -> str:
        """The flag, the variable or the key of the file that the value is from."""
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
    """Declares an option that can also be set by a SHAPEROUTER_ variable, which --help names."""
    variable = (
        "SHAPEROUTER_" + names[0].partition("/")[0].removeprefix("--").replace("-", "_").upper()
    )
    defaults: dict[str, Any] = {
        "cls": Option,
        "envvar": variable,
        "show_envvar": True,
        "show_default": True,
    }
    return click.option(*names, **(defaults | settings))


def options_of(kind: type[Any], argument: str, *options: Decorator) -> Decorator:
    """Declares a group of options, which a command receives as one dataclass.

    Args:
        kind: The dataclass; its fields have the names of the options.
        argument: Name of the command's argument that receives it.
        options: The options, in the order of --help.
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
    """Command-line arguments that give another process the same values of a group.

    A value of None has no argument: it is the default of the other process, too.
    """
    for field in dataclasses.fields(values):
        value = getattr(values, field.name)
        for each in value if isinstance(value, tuple) else (value,):
            if each is None:
                continue
            yield f"--{field.name.replace('_', '-')}={each}"
