"""JSON objects whose fields are taken one by one; those left at the end are unknown."""

from collections.abc import Mapping
from typing import Any, TypeVar

from shaperouter_service.edge.inference.raw_tensors import SHOWN
from shaperouter_service.errors import Violations, shortened

T = TypeVar("T")

_NAMES: Mapping[type, str] = {
    bool: "true or false",
    dict: "an object",
    float: "a number",
    int: "an integer",
    list: "a list",
    str: "a text",
}


class Fields:
    """The fields of a JSON object. Null counts as missing."""

    def __init__(self, value: Mapping[str, Any], violations: Violations, path: str = "") -> None:
        """Takes an object.

        Args:
            value: The object.
            violations: Takes what is wrong.
            path: Where the object is, for errors; empty for the whole body.
        """
        self._left = {name: each for name, each in value.items() if each is not None}
        self._violations = violations
        self.path = path

    def take(self, name: str, kind: type[T], default: T) -> T:
        """A value of a type; the default if it is missing or of another type, which is noted."""
        value = self._left.pop(name, default)
        # A flag is an integer to Python.
        if value is default or (isinstance(value, kind) and type(value) is kind):
            return value
        self.refuse(name, f"must be {_NAMES[kind]}, got {told(value)}")
        return default

    def value(self, name: str) -> Any:
        """A value of any type; None if it is missing."""
        return self._left.pop(name, None)

    def objects(self, name: str) -> list[dict[str, Any]]:
        """A list of objects."""
        values = self.take(name, list, [])
        for index, value in enumerate(values):
            if not isinstance(value, dict):
                self.refuse(f"{name}[{index}]", f"must be an object, got {told(value)}")
        return [value for value in values if isinstance(value, dict)]

    def rest(self) -> dict[str, Any]:
        """All that is left, which is then taken."""
        left, self._left = self._left, {}
        return left

    def refuse(self, name: str, description: str) -> None:
        """Notes that a field is wrong.

        Raises:
            InvalidRequestError: So much is wrong that nothing more is looked for.
        """
        name = shortened(name, SHOWN)
        field = f"{self.path}.{name}" if self.path else name
        self._violations.add(field, description)

    def end(self) -> None:
        """Notes the fields that are left."""
        for name in self.rest():
            self.refuse(name, "is unknown")


def told(value: Any) -> str:
    """A value from a caller, for an error. Lists and objects may be deep, so they are not shown."""
    if isinstance(value, list | dict):
        return _NAMES[type(value)]
    return shortened(repr(value), SHOWN)
