"""Tokens that would complete a stop text, for beam search to know before it chooses.

As in Transformers (`StopStringCriteria`), a stop text may begin and end within tokens. Unlike
there, it must lie in the new text, which excludes special tokens, as in `StopMatcher`. Both agree,
because a string of whole characters is in a text if and only if its bytes are.
"""

from collections.abc import Sequence

import numpy as np

from shaperouter_service.text.vocabulary import Pieces, Vocabulary


class StopTokens:
    """The tokens that complete one of the stop texts. Only one thread may use it at a time."""

    def __init__(self, vocabulary: Vocabulary, stop: Sequence[str]) -> None:
        """Searches the vocabulary for the stop texts, which takes milliseconds.

        Args:
            vocabulary: The model's vocabulary.
            stop: The stop texts, none of them empty.
        """
        self._vocabulary = vocabulary
        self._strings = [string.encode() for string in dict.fromkeys(stop)]
        self._longest = max(map(len, self._strings))
        self._whole_first = self._whole(vocabulary.first)
        self._whole_later = self._whole(vocabulary.later)

    def after(self, token_ids: Sequence[int]) -> np.ndarray:
        """The tokens that complete a stop text after `token_ids`, which have completed none.

        Returns:
            One bit for each token, lowest bit of each byte first: [ceil(V / 8)] uint8.
        """
        tail = self._tail(token_ids)
        if tail is None:
            return np.packbits(self._whole_first, bitorder="little")
        completes, pieces = self._whole_later.copy(), self._vocabulary.later
        for string in self._strings:
            # No token contains more of it than the longest one.
            least = max(1, len(string) - pieces.longest)
            for there in range(least, min(len(string) - 1, len(tail)) + 1):
                if tail.endswith(string[:there]):
                    completes[pieces.beginning_with(string[there:])] = True
        return np.packbits(completes, bitorder="little")

    def completed_by(self, token_ids: Sequence[int]) -> bool:
        """Whether the last token completes a stop text that the tokens before it did not."""
        *before, last = token_ids
        return bool(self.after(before)[last // 8] >> last % 8 & 1)

    def _whole(self, pieces: Pieces) -> np.ndarray:
        """The tokens that contain a whole stop text, [V] bool."""
        whole = np.zeros(len(pieces.texts), np.bool_)
        for string in self._strings:
            whole[pieces.containing(string)] = True
        return whole

    def _tail(self, token_ids: Sequence[int]) -> bytes | None:
        """The end of the text, as far as it matters; None if there is no text yet."""
        first, later = self._vocabulary.first.texts, self._vocabulary.later.texts
        tail: bytes | None = None
        after_first = b""
        earliest = -1
        for token in reversed(token_ids):
            if not later[token]:
                continue
            if tail is not None and len(tail) >= self._longest:
                return tail
            after_first, earliest = tail or b"", token
            tail = later[token] + after_first
        return None if tail is None else first[earliest] + after_first
