"""Values of generation options in the forms that callers send in JSON and in tensors.

A value is a scalar from a tensor, a request parameter or JSON. Triton's own clients send numbers as
texts, too.
"""

from collections.abc import Callable, Mapping
from typing import Any

from shaperouter_service.errors import shortened
from shaperouter_service.generation.option import EARLY_STOPPING, EarlyStopping, Kind

# Maximum characters of a value from a caller in an error.
_SHOWN = 64

_FLAGS = {"true": True, "false": False}


def option_value(kind: Kind, value: Any) -> Any:
    """The value of an option of a kind.

    Raises:
        ValueError: It is none; the message says what it must be, and what it is.
    """
    converted = _CONVERT[kind](value)
    if converted is None:
        shown = shortened(repr(value), _SHOWN)
        raise ValueError(f"must be {_NAMES[kind]}, got {shown}")
    return converted


def flag(value: Any) -> bool | None:
    """A flag; None if the value is none."""
    if isinstance(value, str):
        return _FLAGS.get(value.lower())
    return value if isinstance(value, bool) else None


def integer(value: Any) -> int | None:
    """An integer; None if the value is none."""
    if isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            return None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def number(value: Any) -> float | None:
    """A number; None if the value is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def texts(value: Any) -> tuple[str, ...] | None:
    """One text, or a list of texts; None if the value is neither."""
    return (value,) if isinstance(value, str) else _list(value, _text)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _list(value: Any, convert: Callable[[Any], Any]) -> tuple[Any, ...] | None:
    if not isinstance(value, list):
        return None
    converted = tuple(map(convert, value))
    return None if None in converted else converted


def _integers(value: Any) -> tuple[int, ...] | None:
    return _list(value, integer)


def _biases(value: Any) -> tuple[tuple[int, float], ...] | None:
    if not isinstance(value, dict):
        return None
    biases = []
    for key, each in value.items():
        token, bias = integer(key), number(each)
        if token is None or bias is None:
            return None
        biases.append((token, bias))
    return tuple(biases)


def _early_stopping(value: Any) -> EarlyStopping | None:
    # A list or an object is none, and has no hash.
    if isinstance(value, bool | str):
        return EARLY_STOPPING.get(_FLAGS.get(str(value).lower(), value))
    return None


_CONVERT: Mapping[Kind, Callable[[Any], Any]] = {
    Kind.FLAG: flag,
    Kind.COUNT: integer,
    Kind.SEED: integer,
    Kind.TOKEN: integer,
    Kind.NUMBER: number,
    Kind.EARLY_STOPPING: _early_stopping,
    Kind.LANGUAGE: _text,
    Kind.TEXT: _text,
    Kind.TEXTS: texts,
    Kind.WORDS: texts,
    Kind.TOKENS: _integers,
    Kind.RUNS: lambda value: _list(value, _integers),
    Kind.LOGIT_BIAS: _biases,
}
_NAMES: Mapping[Kind, str] = {
    Kind.FLAG: "true or false",
    Kind.COUNT: "an integer",
    Kind.SEED: "an integer",
    Kind.TOKEN: "a token id",
    Kind.NUMBER: "a number",
    Kind.EARLY_STOPPING: 'true, false or "never"',
    Kind.LANGUAGE: "a text",
    Kind.TEXT: "a text",
    Kind.TEXTS: "a text or a list of texts",
    Kind.WORDS: "a text or a list of texts",
    Kind.TOKENS: "a list of token ids",
    Kind.RUNS: "a list of lists of token ids",
    Kind.LOGIT_BIAS: "an object of numbers by token id",
}
