"""Comparing transcripts with a text, and words' times with one another."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

# A word's text, and when it begins and ends, in seconds.
Word = tuple[str, float, float]


def normalized(text: str) -> list[str]:
    """The words of a text, without case and marks."""
    return re.sub(r"[^a-z0-9' ]", " ", text.lower()).split()


def edits(said: Sequence[str], heard: Sequence[str]) -> int:
    """Words that must be put in, left out or replaced to make one of the other (Levenshtein)."""
    distances = list(range(len(heard) + 1))
    for row, word in enumerate(said, 1):
        diagonal, distances[0] = distances[0], row
        for column, other in enumerate(heard, 1):
            best = min(distances[column] + 1, distances[column - 1] + 1, diagonal + (word != other))
            diagonal, distances[column] = distances[column], best
    return distances[-1]


def word_error_rate(pairs: Sequence[tuple[str, str]]) -> float:
    """Of pairs of what was said and what was heard."""
    wrong = words = 0
    for said, heard in pairs:
        right = normalized(said)
        wrong += edits(right, normalized(heard))
        words += len(right)
    return wrong / words


@dataclass(frozen=True, kw_only=True)
class Timing:
    """How far the times of words are apart.

    Attributes:
        words: That both transcripts have.
        distances: The larger one of beginning and end, of each, in seconds.
    """

    words: int
    distances: Sequence[float]

    def within(self, seconds: float) -> float:
        """The share of words that are no further apart."""
        near = sum(distance <= seconds + 1e-6 for distance in self.distances)
        return near / max(1, self.words)


def compare_times(pairs: Sequence[tuple[Sequence[Word], Sequence[Word]]]) -> Timing:
    """Compares the words that two transcripts of a recording have in common."""
    distances = []
    for ours, theirs in pairs:
        texts = [[text.strip().lower() for text, *_ in words] for words in (ours, theirs)]
        for block in SequenceMatcher(None, *texts, autojunk=False).get_matching_blocks():
            for place in range(block.size):
                _, *mine = ours[block.a + place]
                _, *other = theirs[block.b + place]
                distances.append(max(abs(a - b) for a, b in zip(mine, other, strict=True)))
    return Timing(words=len(distances), distances=distances)
