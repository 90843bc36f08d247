"""Detokenization of a growing sequence."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

# Written by decoders for bytes that form no character, such as the first half of one.
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
# Maximum tokens of a character, which are its bytes.
MAX_CHARACTER = 4
# Maximum tokens that are held back, many more than a character has: they are broken bytes, special
# tokens, or the replacement character itself.
MAX_HELD = 32
# Maximum tokens at the end of a prompt among which its text is sought.
MAX_CONTEXT = 32

Decode: TypeAlias = Callable[[Sequence[int]], str]


class Detokenizer:
    """Converts tokens to text as they arrive, and never returns part of a character.

    A token may contain part of a character, and a decoder may treat the first token of a sequence
    differently (SentencePiece drops its leading space). So new tokens are decoded together with the
    last ones that gave any text, and text is held back while it ends within a character. The
    pieces, joined, are the whole text.
    """

    def __init__(self, decode: Decode, context: Sequence[int] = ()) -> None:
        """Starts an empty sequence.

        Args:
            decode: Decodes token ids, without special tokens.
            context: The end of the prompt that the sequence continues, see `context_of`; empty if
                the sequence is a text of its own.
        """
        self._decode = decode
        self._before = list(context)
        self._pending: list[int] = []

    def push(self, token_ids: Sequence[int]) -> str:
        """Takes new tokens and returns the text that can no longer change; may be empty."""
        self._pending += token_ids
        if not self._pending:
            return ""
        text = self._text(len(self._pending))
        if text and not text.endswith(REPLACEMENT):
            return self._take(len(self._pending), text)
        if len(self._pending) <= MAX_HELD:
            return ""
        for end in range(len(self._pending) - 1, len(self._pending) - MAX_HELD, -1):
            part = self._text(end)
            if not part.endswith(REPLACEMENT):
                return self._take(end, part)
        # The last tokens may begin a character.
        end = len(self._pending) - MAX_CHARACTER + 1
        return self._take(end, self._text(end))

    @property
    def held_characters(self) -> int:
        """Number of complete characters that are held back, before an incomplete one."""
        return len(self._text(len(self._pending)).rstrip(REPLACEMENT)) if self._pending else 0

    def finish(self) -> str:
        """Returns the rest of the text, including incomplete characters."""
        end = len(self._pending)
        return self._take(end, self._text(end)) if end else ""

    def _text(self, end: int) -> str:
        """The text that tokens held back add to what came before."""
        known = self._decode(self._before) if self._before else ""
        return self._decode(self._before + self._pending[:end])[len(known) :]

    def _take(self, end: int, text: str) -> str:
        if text:
            self._before = self._pending[:end]
        del self._pending[:end]
        return text


def context_of(decode: Decode, prompt: Sequence[int]) -> Sequence[int]:
    """The last tokens of a prompt that have text, which the text after it depends on.

    Decoded alone, the text would lose the space that separates it from the prompt.

    Args:
        decode: Decodes token ids, without special tokens.
        prompt: The prompt.

    Returns:
        Tokens of the prompt's end; empty if it has no text there, or ends within a character.
    """
    for size in range(1, min(len(prompt), MAX_CONTEXT) + 1):
        tail = prompt[-size:]
        text = decode(tail)
        # It may be the end of a character, or of several that are decoded together.
        if text and not text.endswith(REPLACEMENT):
            return tail
    return ()
