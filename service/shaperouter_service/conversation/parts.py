"""The parts of a message that a model has written."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class TextPart:
    """Text for the reader."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningPart:
    """The reasoning of the model before its answer."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call of a tool.

    Attributes:
        name: Name of the tool.
        arguments: A JSON object, as the model wrote it.
    """

    name: str
    arguments: str


MessagePart: TypeAlias = TextPart | ReasoningPart | ToolCall


def joined(parts: Iterable[MessagePart]) -> list[MessagePart]:
    """The same message with as few parts as possible."""
    whole: list[MessagePart] = []
    for part in parts:
        match whole[-1:], part:
            case [TextPart(before)], TextPart(text):
                whole[-1] = TextPart(before + text)
            case [ReasoningPart(before)], ReasoningPart(text):
                whole[-1] = ReasoningPart(before + text)
            case _:
                whole.append(part)
    return whole
