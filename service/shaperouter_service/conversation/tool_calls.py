"""Calls of tools in JSON."""

import json
from collections.abc import Collection, Iterator

from shaperouter_service.conversation.json_span import JsonSpan
from shaperouter_service.conversation.parts import ToolCall
from shaperouter_service.system.strict_json import parse

# Models write one or the other, whatever their template says.
_ARGUMENTS = ("arguments", "parameters")
_DECODER = json.JSONDecoder()


class CallReader:
    """Reads what follows the mark that begins calls: JSON, and the mark that ends them.

    Attributes:
        calls: The calls, once they have ended; None before.
        rest: The text after them.
    """

    def __init__(
        self, closing: str, *, is_list: bool, known: Collection[str] | None = None
    ) -> None:
        """Starts after the mark.

        Args:
            closing: What must follow the JSON, unless the message ends there; empty for nothing.
            is_list: Whether there is a list of calls, and not a single one.
            known: The names that calls must have; None for any.
        """
        self.calls: list[ToolCall] | None = None
        self.rest = ""
        self._closing = closing
        self._is_list = is_list
        self._known = known
        self._span = JsonSpan("[" if is_list else "{")
        self._pieces: list[str] = []
        self._found: list[ToolCall] | None = None
        self._after = ""

    @property
    def text(self) -> str:
        """All text so far."""
        return "".join(self._pieces)

    def push(self, piece: str) -> None:
        """Takes more text.

        Raises:
            ValueError: It is not a call.
        """
        self._pieces.append(piece)
        if self._found is None:
            end = self._span.push(piece)
            if end is None:
                return
            self._after = piece[end:]
            text = self.text
            self._found = self._parsed(text[: len(text) - len(self._after)])
        else:
            self._after += piece
        self._close()

    def finish(self) -> None:
        """Ends the message.

        Raises:
            ValueError: The calls have not ended.
        """
        if self._found is None:
            raise ValueError("the JSON has no end")
        self.calls = self._found

    def _close(self) -> None:
        after = self._after.lstrip() if self._closing else self._after
        if after.startswith(self._closing):
            self.calls, self.rest = self._found, after[len(self._closing) :]
        elif not self._closing.startswith(after):
            raise ValueError(f"{self._closing} is missing")

    def _parsed(self, text: str) -> list[ToolCall]:
        try:
            calls = list(parsed_calls(text, is_list=self._is_list))
        except RecursionError as error:
            raise ValueError("brackets are nested too deep") from error
        if not calls:
            raise ValueError("there is no call")
        for call in calls:
            if self._known is not None and call.name not in self._known:
                raise ValueError(f"there is no tool {call.name!r}")
        return calls


def parsed_calls(text: str, *, is_list: bool) -> Iterator[ToolCall]:
    """Parses calls, each an object with the name of a tool and an object of arguments.

    Args:
        text: A JSON object, or an array of them; spaces may come first.
        is_list: Whether it is an array.

    Raises:
        ValueError: It is something else.
    """
    values = parse(text) if is_list else [parse(text)]
    at = 0
    for value in values:
        call = value if isinstance(value, dict) else {}
        name = call.get("name")
        key = next((key for key in _ARGUMENTS if isinstance(call.get(key), dict)), None)
        if not isinstance(name, str) or not name or key is None:
            raise ValueError("a call must have a name and an object of arguments")
        # After the bracket of the array, or the comma behind the call before.
        at = text.index("{", at)
        members, at = _members(text, at)
        yield ToolCall(name=name, arguments=members[key])


def _members(text: str, at: int) -> tuple[dict[str, str], int]:
    """The members of a valid object as they are written, and where the object ends.

    Args:
        text: Valid JSON.
        at: Index of the object's bracket.
    """

    def skip(index: int) -> int:
        while index < len(text) and text[index].isspace():
            index += 1
        return index

    members: dict[str, str] = {}
    at = skip(at + 1)
    while text[at] != "}":
        name, at = _DECODER.raw_decode(text, at)
        begin = skip(skip(at) + 1)  # behind the colon
        _, at = _DECODER.raw_decode(text, begin)
        members[name] = text[begin:at]
        at = skip(at)
        if text[at] == ",":
            at = skip(at + 1)
    return members, at + 1
