"""The bytes that each token adds to a text."""

import re
from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

# A byte that occurs in no text. It separates the tokens' bytes when all are searched at once.
_SEPARATOR = b"\xff"


class TokenBytes:
    """The bytes of each of V tokens, which can be searched for a string.

    Attributes:
        texts: Bytes of each token; empty for one that adds nothing, such as a special token.
        longest: Number of bytes of the longest.
    """

    def __init__(self, texts: Sequence[bytes]) -> None:
        """Sorts the tokens by their bytes."""
        self.texts = texts
        self.longest = max(map(len, texts))
        self._order = np.array(sorted(range(len(texts)), key=texts.__getitem__), np.int64)
        self._sorted = [texts[token] for token in self._order]
        self._joined = _SEPARATOR.join(texts)
        lengths = np.array([len(text) + len(_SEPARATOR) for text in texts], np.int64)
        self._starts = np.cumsum(lengths) - lengths

    def containing(self, string: bytes) -> np.ndarray:
        """Tokens whose bytes contain a string: [N] int64, possibly with repetitions."""
        matches = (match.start() for match in re.finditer(re.escape(string), self._joined))
        offsets = np.fromiter(matches, np.int64)
        return np.searchsorted(self._starts, offsets, side="right") - 1

    def beginning_with(self, string: bytes) -> np.ndarray:
        """Tokens whose bytes begin with a non-empty string: [N] int64."""
        # UTF-8 has no byte 255, so the last byte can be incremented.
        after = string[:-1] + bytes([string[-1] + 1])
        return self._order[bisect_left(self._sorted, string) : bisect_left(self._sorted, after)]


class Vocabulary:
    """The bytes that each of V tokens adds to the text of a sequence.

    Attributes:
        first: The tokens at the beginning of a text, where SentencePiece drops a leading space.
        later: The tokens after others.
    """

    def __init__(self, first: Sequence[bytes], later: Sequence[bytes], size: int) -> None:
        """Stores the bytes of the tokenizer's tokens.

        Args:
            first: Bytes of each token at the beginning of a text.
            later: Bytes of each token after others.
            size: V, the model's vocabulary size; tokens unknown to the tokenizer add nothing.
        """
        unknown = [b""] * max(0, size - len(later))
        self.later = TokenBytes([*later[:size], *unknown])
        self.first = self.later if first is later else TokenBytes([*first[:size], *unknown])

    def __len__(self) -> int:
        return len(self.later.texts)
