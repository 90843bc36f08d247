"""What each token adds to a text, as bytes."""

import re
from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

# A byte that occurs in no text. It separates the tokens' bytes when all are searched at once.
_SEPARATOR = b"\xff"


class Pieces:
    """The bytes that each of V tokens adds to a text, with searches for strings.

    Attributes:
        texts: Bytes of each token; empty for a token that adds nothing, such as a special token.
        longest: Length of the longest, in bytes.
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
        """Tokens whose bytes contain a string: [N] int64, some of them several times."""
        found = (match.start() for match in re.finditer(re.escape(string), self._joined))
        places = np.fromiter(found, np.int64)
        return np.searchsorted(self._starts, places, side="right") - 1

    def beginning_with(self, string: bytes) -> np.ndarray:
        """Tokens whose bytes begin with a string that is not empty: [N] int64."""
        # UTF-8 has no byte 255, so the last byte can be incremented.
        after = string[:-1] + bytes([string[-1] + 1])
        return self._order[bisect_left(self._sorted, string) : bisect_left(self._sorted, after)]


class Vocabulary:
    """What each of V tokens adds to the text of a sequence.

    Attributes:
        first: Pieces if the token is the first that adds anything; SentencePiece drops its leading
            space.
        later: Pieces if other tokens precede it.
    """

    def __init__(self, first: Sequence[bytes], later: Sequence[bytes], size: int) -> None:
        """Stores the bytes of the tokenizer's tokens.

        Args:
            first: Bytes of each token as the first.
            later: Bytes of each token after others.
            size: V, the model's vocabulary size; tokens unknown to the tokenizer add nothing.
        """
        unknown = [b""] * max(0, size - len(later))
        self.later = Pieces([*later[:size], *unknown])
        self.first = self.later if first is later else Pieces([*first[:size], *unknown])

    def __len__(self) -> int:
        return len(self.later.texts)
