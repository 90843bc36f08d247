"""Checks of values before they are put into a message.

The service checks the limits. These functions refuse only what a message cannot contain, so that a
wrong type or an integer beyond its field's width is reported with the field's name, like any other
invalid value. All raise `InvalidArgumentError`.
"""

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from shaperouter._errors import InvalidArgumentError


def text(field: str, value: object) -> str:
    """A string that can be encoded as UTF-8."""
    if not isinstance(value, str):
        raise InvalidArgumentError.of(field, f"must be a str, got {shown(value)}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgumentError.of(
            field,
            f"cannot be encoded as UTF-8: character {error.start} is the lone surrogate "
            f"U+{ord(value[error.start]):04X}",
        ) from None
    return value


def flag(field: str, value: object) -> bool:
    """True or False, and no value that merely equals one."""
    if not isinstance(value, bool):
        raise InvalidArgumentError.of(field, f"must be True or False, got {shown(value)}")
    return value


def integer(field: str, value: object, *, bits: int) -> int:
    """An integer for a signed field of `bits` bits."""
    try:
        # Conversion is the check; values that it refuses are reported below.
        number = operator.index(value)  # type: ignore[arg-type]  # see above
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise InvalidArgumentError.of(field, f"must be an integer, got {shown(value)}")
    if not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
        raise InvalidArgumentError.of(
            field, f"must fit a signed {bits}-bit integer, got {shown(number)}"
        )
    return number


def integers(field: str, values: object) -> list[int]:
    """Integers for a repeated 32-bit field."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise InvalidArgumentError.of(field, f"must be integers, got {shown(values)}")
    return [integer(f"{field}[{i}]", value, bits=32) for i, value in enumerate(values)]


def items(field: str, values: object, what: str) -> list[object]:
    """The items of a list, of any type; a string is not a list."""
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise InvalidArgumentError.of(field, f"must be a list of {what}, got {shown(values)}")
    return list(values)


def number(field: str, value: object) -> float:
    """A number for a 64-bit field; the service refuses infinities and NaN."""
    if isinstance(value, str | bytes | bool):
        raise InvalidArgumentError.of(field, f"must be a number, got {shown(value)}")
    try:
        # Conversion is the check, as for integers.
        return float(value)  # type: ignore[arg-type]  # see above
    except OverflowError:
        description = f"must fit a 64-bit float, got {shown(value)}"
    except (TypeError, ValueError):
        description = f"must be a number, got {shown(value)}"
    raise InvalidArgumentError.of(field, description)


def fields(
    options: Mapping[str, object], checks: Mapping[str, Callable[[str, object], Any]]
) -> dict[str, Any]:
    """The fields of a message of options, without those that are None.

    Args:
        options: Values by name.
        checks: What converts the value of each option, given the field's name.

    Raises:
        TypeError: There is no such option.
    """
    if unknown := options.keys() - checks.keys():
        raise TypeError(f"unknown option {min(unknown)!r}; the options are {', '.join(checks)}")
    return {
        name: checks[name](f"options.{name}", value)
        for name, value in options.items()
        if value is not None
    }


def shown(value: object) -> str:
    """An invalid value for an error message: shortened, with its type unless it is an integer."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value) if abs(value) < 10**40 else f"an integer of {value.bit_length()} bits"
    printed = repr(value)
    return f"{printed if len(printed) <= 60 else printed[:59] + '…'} ({type(value).__name__})"
