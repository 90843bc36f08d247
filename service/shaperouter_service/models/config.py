"""Values of a checkpoint's JSON files, checked as they are read."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from shaperouter_service.errors import StartupError

T = TypeVar("T", int, float, bool, str)


@dataclass(frozen=True)
class Config:
    """The content of one file.

    Attributes:
        path: Of the file, for messages.
        values: What it holds.
    """

    path: Path
    values: Mapping[str, Any]

    def value(self, name: str, kind: type[T], default: T) -> T:
        """Reads one value; null counts as left out, as in Transformers.

        Raises:
            StartupError: It has another type, or is a number that is not positive.
        """
        value = self.values.get(name)
        if value is None:
            return default
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind:
            raise self.error(f"{name} must be of type {kind.__name__}, got {value!r}")
        if isinstance(value, int | float) and not isinstance(value, bool) and not value > 0:
            raise self.error(f"{name} must be positive, got {value!r}")
        return value

    def error(self, message: str) -> StartupError:
        """An error about this file."""
        return StartupError(f"{self.path}: {message}")
