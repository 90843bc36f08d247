"""The tokens that would complete a stop string, which beam search must know before it chooses.

As in Transformers (`StopStringCriteria`), a stop string may begin and end within tokens. Unlike
there, and as in `StopMatcher`, it must lie in the new text without special tokens. The two classes
agree, because a string of whole characters is in a text if and only if its bytes are.
"""

from collections.abc import Sequence

import numpy as np

from shaperouter_service.text.vocabulary import TokenBytes, Vocabulary


class StopTokens:
    """Finds the tokens that complete a stop string. Only one thread may use it at a time."""

    def __init__(
        self, vocabulary: Vocabulary, stop: Sequence[str], *, continues_text: bool
    ) -> None:
        """Searches the vocabulary for the stop strings, which takes milliseconds.

        Args:
            vocabulary: The model's vocabulary.
            stop: The stop strings, none of them empty.
            continues_text: Whether the new text continues that of the prompt.
        """
        self._later = vocabulary.later
        self._first = vocabulary.later if continues_text else vocabulary.first
        self._strings = [string.encode() for string in dict.fromkeys(stop)]
        self._longest = max(map(len, self._strings))
        self._whole_first = self._contains_whole(self._first)
        self._whole_later = self._contains_whole(self._later)

    def after(self, token_ids: Sequence[int]) -> np.ndarray:
        """Finds the tokens that complete a stop string after `token_ids`, which contain none.

        Returns:
            One bit for each token, lowest bit of each byte first: [ceil(V / 8)] uint8.
        """
        tail = self._tail(token_ids)
        if tail is None:
            return np.packbits(self._whole_first, bitorder="little")
        completes, tokens = self._whole_later.copy(), self._later
        for string in self._strings:
            # A token can complete at most as many bytes as the longest one has.
            shortest = max(1, len(string) - tokens.longest)
            for known in range(shortest, min(len(string) - 1, len(tail)) + 1):
                if tail.endswith(string[:known]):
                    completes[tokens.beginning_with(string[known:])] = True
        return np.packbits(completes, bitorder="little")

    def completed_by(self, token_ids: Sequence[int]) -> bool:
        """Whether the last token completes a stop string."""
        *before, last = token_ids
        return bool(self.after(before)[last // 8] >> last % 8 & 1)

    def _contains_whole(self, tokens: TokenBytes) -> np.ndarray:
        """Whether each token contains a whole stop string, [V] bool."""
        contains = np.zeros(len(tokens.texts), np.bool_)
        for string in self._strings:
            contains[tokens.containing(string)] = True
        return contains

    def _tail(self, token_ids: Sequence[int]) -> bytes | None:
        """The end of the text, at least as long as a stop string; None if there is no text yet."""
        first, later = self._first.texts, self._later.texts
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
