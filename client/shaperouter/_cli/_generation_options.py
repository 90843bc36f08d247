"""Options of ``shaperouter generate`` that say how to generate, in groups."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from shaperouter._cli._command import GroupedOption, wants_json
from shaperouter._option import Kind, Option
from shaperouter._options import OPTIONS

F = TypeVar("F", bound=Callable[..., Any])

_NEED_JSON = ("logprobs", "prompt_logprobs")
_EARLY_STOPPING: dict[str, bool | str] = {"heuristic": False, "first": True, "never": "never"}


def _early_stopping(
    ctx: click.Context, parameter: click.Parameter, value: str | None
) -> bool | str | None:
    del ctx, parameter
    return None if value is None else _EARLY_STOPPING[value]


def _logit_bias(
    ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> dict[int, float] | None:
    del ctx
    biases: dict[int, float] = {}
    for value in values:
        token, _, bias = value.partition("=")
        try:
            number, added = int(token), float(bias)
        except ValueError:
            raise click.BadParameter(f"must be ID=BIAS, got {value!r}", param=parameter) from None
        if number in biases:
            raise click.BadParameter(f"token {number} is given twice", param=parameter)
        biases[number] = added
    return biases or None


def _several(
    ctx: click.Context, parameter: click.Parameter, values: tuple[Any, ...]
) -> tuple[Any, ...] | None:
    del ctx, parameter
    return values or None


# What click needs to know of each kind.
_SETTINGS: dict[Kind, dict[str, Any]] = {
    Kind.FLAG: {"is_flag": True},
    Kind.COUNT: {"type": int},
    Kind.SEED: {"type": int},
    Kind.NUMBER: {"type": float},
    Kind.TOKEN: {"type": int},
    Kind.EARLY_STOPPING: {
        "type": click.Choice(list(_EARLY_STOPPING)),
        "callback": _early_stopping,
    },
    Kind.TOKENS: {"type": int, "multiple": True, "callback": _several},
    Kind.LANGUAGE: {},
    Kind.TEXT: {},
    Kind.TEXTS: {"multiple": True, "callback": _several},
    Kind.LOGIT_BIAS: {"multiple": True, "callback": _logit_bias},
    Kind.WORDS: {"multiple": True, "callback": _several},
}


def _added(option: Option, command: F) -> F:
    """The command with one more option."""
    return click.option(
        option.flag,
        option.name,
        cls=GroupedOption,
        group=option.group,
        default=None,
        metavar=option.metavar or None,
        help=option.help,
        **_SETTINGS[option.kind],
    )(command)


def generation_options(command: F) -> F:
    """Adds the options of a generation to a command, which takes them as keyword arguments."""
    for option in reversed(OPTIONS):
        command = _added(option, command)
    return command


def require_json(ctx: click.Context, options: Mapping[str, Any]) -> None:
    """Checks that the output has room for what the options ask for.

    Raises:
        click.UsageError: Log-probabilities are asked for, but no JSON.
    """
    for option in OPTIONS:
        if option.name in _NEED_JSON and options[option.name] is not None and not wants_json(ctx):
            raise click.UsageError(
                f"{option.flag} needs --json: the text output cannot show them", ctx
            )
