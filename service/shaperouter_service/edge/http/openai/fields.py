"""The fields of a request, taken one by one; those left at the end are unknown."""

import contextlib
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from shaperouter_service.edge.option_values import option_value
from shaperouter_service.errors import InvalidRequestError, Violations, shortened
from shaperouter_service.generation.option import Kind
from shaperouter_service.generation.option_table import OPTIONS

# Maximum characters of a name or value from a caller in an error.
_SHOWN = 64
# OpenAI's names of our options. Other options have their own names.
OPTION_NAMES: Mapping[str, str] = {
    "max_tokens": "max_new_tokens",
    "max_completion_tokens": "max_new_tokens",
    "n": "num_return_sequences",
}
# Kinds whose values may be texts in JSON.
_TEXTS = (Kind.TEXT, Kind.TEXTS, Kind.WORDS, Kind.LANGUAGE, Kind.EARLY_STOPPING)
# What to do instead, in OpenAI's words, by ours.
_HINTS: Mapping[str, str] = {OPTIONS["temperature"].hint: "0 means greedy decoding"}
# Fields that change no answer: they name the caller, or ask for what is always so.
_WITHOUT_EFFECT = (
    "user",
    "metadata",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "service_tier",
)


class Fields:
    """The fields of a body, and what is wrong with them. Null counts as missing.

    Attributes:
        violations: What is wrong.
        names: The caller's names of options, by ours.
    """

    def __init__(
        self, body: Mapping[str, Any], option_names: Mapping[str, str] = OPTION_NAMES
    ) -> None:
        """Takes a JSON object.

        Args:
            body: The object.
            option_names: Our names of options that have other ones here.
        """
        self.violations = Violations()
        self.names: dict[str, str] = {}
        self._option_names = option_names
        self._left = {name: value for name, value in body.items() if value is not None}

    def refuse(self, field: str, description: str) -> None:
        """Notes that something is wrong.

        Raises:
            InvalidRequestError: So much is wrong that nothing more is looked for.
        """
        self.violations.add(shortened(field, _SHOWN), description)

    def has(self, name: str) -> bool:
        """Whether there is a value that has not been taken."""
        return name in self._left

    def take(self, name: str) -> Any:
        """Any value; None if it is missing."""
        return self._left.pop(name, None)

    def text(self, name: str) -> str:
        """A text; empty if it is missing or none."""
        value = self.take(name)
        if value is not None and not isinstance(value, str):
            self.refuse(name, f"must be a text, got {told(value)}")
        return value if isinstance(value, str) else ""

    def flag(self, name: str) -> bool:
        """A flag; false if it is missing or none."""
        value = self.take(name)
        if value is not None and not isinstance(value, bool):
            self.refuse(name, f"must be true or false, got {told(value)}")
        return value is True

    def count(self, name: str) -> int | None:
        """An integer; None if it is missing or none."""
        value = self.take(name)
        if value is not None and type(value) is not int:
            self.refuse(name, f"must be an integer, got {told(value)}")
        return value if type(value) is int else None

    def objects(self, name: str) -> list[dict[str, Any]]:
        """A list of objects; empty if it is missing or none."""
        value = self.take(name)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
            self.refuse(name, f"must be a list of objects, got {told(value)}")
            return []
        return value

    def mapping(self, name: str) -> dict[str, Any]:
        """An object; empty if it is missing or none."""
        value = self.take(name)
        if value is not None and not isinstance(value, dict):
            self.refuse(name, f"must be an object, got {told(value)}")
        return value if isinstance(value, dict) else {}

    def only(self, name: str, *supported: Any, why: str = "") -> None:
        """Refuses all values of a field but those that change nothing here."""
        value = self.take(name)
        if value is None or value in supported or value in ([], {}):
            return
        rule = f"must be {_listed(supported)}" if any(supported) else "is not supported"
        self.refuse(name, f"{rule}{f' ({why})' if why else ''}, got {told(value)}")

    def options(self) -> dict[str, Any]:
        """All generation options, by our names."""
        options: dict[str, Any] = {}
        ours = self._option_names
        for given in [name for name in self._left if ours.get(name, name) in OPTIONS]:
            name, value = ours.get(given, given), self.take(given)
            kind = OPTIONS[name].kind
            try:
                if isinstance(value, str) and kind not in _TEXTS:
                    raise ValueError(f"must not be a text, got {told(value)}")
                converted = option_value(kind, value)
            except ValueError as error:
                self.refuse(given, str(error))
                continue
            if name in options and options[name] != converted:
                rule = f"must equal {self.names[name]}, which is the same option"
                self.refuse(given, f"{rule}, got {told(value)} and {options[name]}")
            options[name], self.names[name] = converted, given
        return options

    def refuse_rest(self, path: str, part: "Fields") -> None:
        """Refuses what is wrong or unknown in a part of the request.

        Args:
            path: The part's field.
            part: Its fields. The known ones have already been taken.
        """
        for name in part._left:
            part.refuse(name, "is unknown")
        for each in part.violations:
            self.refuse(f"{path}.{each.field}", each.description)

    def end(self) -> None:
        """Refuses the fields that are left.

        Raises:
            InvalidRequestError: Something is wrong.
        """
        for name in _WITHOUT_EFFECT:
            self.take(name)
        for name in self._left:
            self.refuse(name, "is unknown")
        self.violations.refuse_any()

    @contextlib.contextmanager
    def callers_words(self) -> Iterator[None]:
        """Puts the caller's words into errors that the core raises inside the context."""
        try:
            yield
        except InvalidRequestError as error:
            violations = (
                replace(
                    each,
                    field=self._callers_field(each.field),
                    description=_reworded(each.description),
                )
                for each in error.violations
            )
            # A field of the caller may be two options.
            raise InvalidRequestError(*dict.fromkeys(violations)) from None

    def _callers_field(self, field: str) -> str:
        name = field.removeprefix("options.")
        if name in self.names:
            return self.names[name]
        option = name.partition("[")[0]
        # What is wrong may be within an option.
        if option not in self.names:
            option = re.split(r"[.[]", name, maxsplit=1)[0]
        return f"{self.names.get(option, option)}{name.removeprefix(option)}"


def told(value: Any) -> str:
    """A value from a caller, for an error."""
    return shortened(repr(value), _SHOWN)


def _reworded(description: str) -> str:
    for ours, hint in _HINTS.items():
        description = description.replace(ours, hint)
    return description


def _listed(values: Collection[Any]) -> str:
    return " or ".join(map(repr, values))
