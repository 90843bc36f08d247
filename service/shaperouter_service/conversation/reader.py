"""Messages that arrive in pieces, split into text, reasoning and calls of tools."""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import Enum, auto

from shaperouter_service.conversation.formats import THINK, THINK_END, CallFormat, MessageFormat
from shaperouter_service.conversation.parts import MessagePart, ReasoningPart, TextPart, joined
from shaperouter_service.conversation.tool_calls import CallReader


@dataclass(frozen=True, kw_only=True)
class MessageRules:
    """How to read the messages that answer a conversation.

    Attributes:
        format: How the model writes them.
        in_reasoning: Whether the prompt has begun the reasoning.
        tools: Names of the tools that the model may call. Without any, nothing is a call.
        single_call: Whether a message ends after its first call.
    """

    format: MessageFormat
    in_reasoning: bool = False
    tools: Collection[str] = ()
    single_call: bool = False

    def reader(self) -> "MessageReader":
        """Creates a reader for one message."""
        return MessageReader(self)


class _State(Enum):
    START = auto()
    REASONING = auto()
    TEXT = auto()
    CALL = auto()


class MessageReader:
    """Splits a message that arrives in pieces.

    The parts, joined, do not depend on how the message is cut into pieces. A call is returned once
    it is whole; text that turns out not to be a call stays text. Line breaks around the reasoning
    and spaces around calls belong to the format; all else is in one of the parts.

    Attributes:
        is_complete: Whether the message has its only call. All text after it is ignored.
    """

    def __init__(self, rules: MessageRules) -> None:
        """Starts an empty message."""
        self.is_complete = False
        self._rules = rules
        self._calls: CallFormat | None = rules.format.calls if rules.tools else None
        openings = sorted(self._calls.closings if self._calls else (), key=len, reverse=True)
        self._openings = openings
        self._opening = re.compile("|".join(map(re.escape, openings))) if openings else None
        self._state = _State.START if rules.format.thinks else _State.TEXT
        self._held = ""
        # Characters that are dropped before the next part.
        self._skipped = ""
        if rules.in_reasoning:
            self._begin_reasoning()
        self._may_be_bare = True
        self._call: CallReader | None = None
        # What comes before the JSON of a call.
        self._before_call = ""

    @property
    def in_reasoning(self) -> bool:
        """Whether the next text is reasoning, unless a mark ends the reasoning first."""
        return self._state is _State.REASONING

    def push(self, text: str) -> list[MessagePart]:
        """Takes more text and returns the parts, or pieces of parts, that are certain."""
        return self._read(text, final=False)

    def finish(self) -> list[MessagePart]:
        """Ends the message and returns the rest of its parts."""
        return self._read("", final=True)

    def _read(self, text: str, *, final: bool) -> list[MessagePart]:
        self._held += text
        parts: list[MessagePart] = []
        state = None
        # Each state hands over to the next one until none can go on.
        while state is not self._state and not self.is_complete:
            state = self._state
            parts += self._step(final=final)
        return joined(parts)

    def _step(self, *, final: bool) -> Iterator[MessagePart]:
        match self._state:
            case _State.START:
                return self._start(final=final)
            case _State.REASONING:
                return self._reasoning(final=final)
            case _State.TEXT:
                return self._text(final=final)
            case _State.CALL:
                return self._in_call(final=final)

    def _start(self, *, final: bool) -> Iterator[MessagePart]:
        begun = self._held.lstrip()
        if begun.startswith(THINK):
            self._held = begun[len(THINK) :]
            self._begin_reasoning()
        elif final or not THINK.startswith(begun):
            self._state = _State.TEXT
        yield from ()

    def _begin_reasoning(self) -> None:
        self._state, self._skipped = _State.REASONING, "\n"

    def _reasoning(self, *, final: bool) -> Iterator[MessagePart]:
        self._skip()
        text, mark, after = self._held.partition(THINK_END)
        if mark:
            self._held, self._state, self._skipped = after, _State.TEXT, "\n"
            text = text.rstrip("\n")
        else:
            text = text if final else _certain(text, [THINK_END], spaces="\n")
            self._held = self._held[len(text) :]
        if text:
            yield ReasoningPart(text)

    def _text(self, *, final: bool) -> Iterator[MessagePart]:
        self._skip()
        found = self._opening.search(self._held) if self._opening else None
        begun = self._held.lstrip()
        if self._calls and self._calls.bare_closing is not None and self._may_be_bare:
            if begun.startswith("{"):
                self._begin_call(0, len(self._held) - len(begun), "")
                return
            if not begun and not final:
                return
        if found:
            text = self._held[: found.start()].rstrip()
            self._begin_call(len(text), found.end(), found[0])
        else:
            text = self._held
            if self._openings and not final:
                text = _certain(text, self._openings, spaces=None)
            self._held = self._held[len(text) :]
        if text:
            self._may_be_bare = False
            yield TextPart(text)

    def _begin_call(self, begin: int, end: int, opening: str) -> None:
        calls = self._calls
        if calls is None:
            return
        self._before_call, self._held = self._held[begin:end], self._held[end:]
        closing = calls.closings[opening] if opening else calls.bare_closing or ""
        # Without a mark, an answer in JSON could pass for a call.
        known = None if opening else self._rules.tools
        self._call = CallReader(closing, is_list=calls.is_list, known=known)
        self._state = _State.CALL

    def _in_call(self, *, final: bool) -> Iterator[MessagePart]:
        call = self._call
        if call is None:
            return
        piece, self._held = self._held, ""
        try:
            call.push(piece)
            if final and call.calls is None:
                call.finish()
        except ValueError:
            # The rest may have a call, but not if it was read to the end for this one.
            yield TextPart(self._before_call)
            self._held = call.text
            if final:
                yield TextPart(self._held)
                self._held = ""
            self._state, self._may_be_bare = _State.TEXT, False
            return
        if call.calls is None:
            return
        yield from call.calls[:1] if self._rules.single_call else call.calls
        self.is_complete = self._rules.single_call
        self._held = call.rest
        self._state, self._skipped, self._may_be_bare = _State.TEXT, " \t\r\n", True

    def _skip(self) -> None:
        if self._skipped:
            self._held = self._held.lstrip(self._skipped)
            if self._held:
                self._skipped = ""


def _certain(text: str, marks: Collection[str], *, spaces: str | None) -> str:
    """The text before what may be the beginning of a mark, and the spaces before that."""
    begun = (
        length
        for mark in marks
        for length in range(min(len(mark) - 1, len(text)), 0, -1)
        if text.endswith(mark[:length])
    )
    return text[: len(text) - max(begun, default=0)].rstrip(spaces)
