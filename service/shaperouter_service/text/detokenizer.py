"""Detokenization of a growing sequence."""

from collections.abc import Callable, Sequence

# Written by decoders for bytes that form no character, such as the first half of one.
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class Detokenizer:
    """Converts tokens to text as they arrive, and never returns part of a character.

    A token may contain part of a character, and a decoder may treat the first token of a sequence
    differently (SentencePiece drops its leading space). So new tokens are decoded together with the
    last ones that gave any text, and text is held back while it ends within a character. The
    pieces, joined, are the whole text.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        """Starts an empty sequence.

        Args:
            decode: Decodes token ids, without special tokens.
        """
        self._decode = decode
        self._before: list[int] = []
        self._pending: list[int] = []

    def push(self, token_ids: Sequence[int]) -> str:
        """Takes new tokens and returns the text that can no longer change; may be empty."""
        self._pending += token_ids
        return self._take(final=False)

    def finish(self) -> str:
        """Returns the rest of the text, including incomplete characters."""
        return self._take(final=True)

    def _take(self, *, final: bool) -> str:
        if not self._pending:
            return ""
        known = self._decode(self._before) if self._before else ""
        text = self._decode(self._before + self._pending)[len(known) :]
        if not final and (not text or text.endswith(REPLACEMENT)):
            return ""
        self._before, self._pending = self._pending, []
        return text
