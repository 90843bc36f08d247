"""Checked access to the values of a checkpoint's JSON files."""

import dataclasses
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from shaperouter_service.errors import StartupError

T = TypeVar("T", int, float, bool, str)
Number = TypeVar("Number", int, float)

# Integers from here on are refused, because floats and tensors cannot hold all of them.
MAX_INTEGER = 2**63

# Values that no tensor's shape confirms, by the names that all families share.
UNCONFIRMED = ("num_attention_heads", "num_key_value_heads")


@dataclass(frozen=True)
class Config:
    """The content of one file.

    Attributes:
        path: Path of the file, for messages.
        values: Content of the file.
    """

    path: Path
    values: Mapping[str, Any]

    def with_own_names(self, other_names: Mapping[str, str]) -> Self:
        """The same values under the family's own names, where only another name has them.

        Args:
            other_names: The family's name of a value, by its other name.

        Raises:
            StartupError: The two names have different numbers of heads.
        """
        values = dict(self.values)
        for other, own in other_names.items():
            value = values.get(other)
            if value is None:
                continue
            if values.get(own) is None:
                values[own] = value
            elif other in UNCONFIRMED and values[own] != value:
                # Transformers would compute with the other name's. Other values count under the
                # own name, because Transformers 4 left outdated ones under the others.
                raise self.error(
                    f"{own} and {other} must be equal, got {values[own]!r} and {value!r}"
                )
        return dataclasses.replace(self, values=values)

    def value(self, name: str, kind: type[T], default: T) -> T:
        """Reads one value; null counts as missing, as in Transformers.

        Raises:
            StartupError: The value has another type, or is a number but not positive and finite.
        """
        value = self._typed(name, kind, default)
        if isinstance(value, int | float) and not isinstance(value, bool):
            if not value > 0:
                raise self.error(f"{name} must be positive, got {value!r}")
            if value == math.inf:
                raise self.error(f"{name} must be finite, got {value!r}")
        return value

    def number(
        self,
        name: str,
        kind: type[Number],
        default: Number,
        *,
        at_most: float | None = None,
        below: float | None = None,
        at_least: float | None = None,
        above: float | None = None,
    ) -> Number:
        """Reads one number and checks its range.

        The range starts at `at_least`, or just above `above`, and ends at `at_most`, or just below
        `below`.

        Raises:
            StartupError: The value has another type, or is outside the range.
        """
        value = self._typed(name, kind, default)
        low = value >= at_least if at_least is not None else above is None or value > above
        high = value <= at_most if at_most is not None else below is None or value < below
        if not (low and high):
            start = f"from {at_least:g}" if at_least is not None else f"above {above:g}, up"
            end = f"to {at_most:.10g}" if at_most is not None else f"to below {below:g}"
            raise self.error(f"{name} must be {start} {end}, got {value!r}")
        return value

    def choice(self, name: str, default: str, choices: Collection[str]) -> str:
        """Reads a string that must be one of several choices.

        Raises:
            StartupError: The value is none of the choices.
        """
        value = self._typed(name, str, default)
        if value not in choices:
            raise self.error(f"{name} must be one of {', '.join(choices)}, got {value!r}")
        return value

    def error(self, message: str) -> StartupError:
        """Creates an error about this file."""
        return StartupError(f"{self.path}: {message}")

    def _typed(self, name: str, kind: type[T], default: T) -> T:
        value = self.values.get(name)
        if value is None:
            return default
        if type(value) is int and abs(value) >= MAX_INTEGER:
            limits = f"-{MAX_INTEGER} and {MAX_INTEGER}"
            raise self.error(f"{name} must be between {limits}, got {value}")
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind:
            raise self.error(f"{name} must be of type {kind.__name__}, got {value!r}")
        return value
