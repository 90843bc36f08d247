"""Comparing transcripts with a text, and words' times with one another."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from transformers.models.whisper.english_normalizer import EnglishTextNormalizer

# The one of Whisper's paper, so that "twelve" is "12"; without its list of American spellings,
# which Transformers leaves to checkpoints.
_normalizer = EnglishTextNormalizer({})

# The text of a word or a segment, and when it begins and ends, in seconds.
Timed = tuple[str, float, float]


def normalized(text: str) -> list[str]:
    """The words of a text, as word error rates count them."""
    return str(_normalizer(text)).split()


def edit_table(said: Sequence[str], heard: Sequence[str]) -> list[list[int]]:
    """Least words to put in, leave out or replace between beginnings of both (Levenshtein)."""
    table = [list(range(len(heard) + 1))]
    for row, word in enumerate(said, 1):
        above, line = table[-1], [row]
        for column, other in enumerate(heard):
            line.append(
                min(above[column + 1] + 1, line[column] + 1, above[column] + (word != other))
            )
        table.append(line)
    return table


def matching(ours: Sequence[str], theirs: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Places of what two sequences have in common where the fewest edits are needed, backwards.

    So a text that repeats itself is not matched with another of its repetitions.
    """
    table = edit_table(ours, theirs)
    row, column = len(ours), len(theirs)
    while row and column:
        same = ours[row - 1] == theirs[column - 1]
        if table[row][column] == table[row - 1][column - 1] + (not same):
            row, column = row - 1, column - 1
            if same:
                yield row, column
        elif table[row][column] == table[row - 1][column] + 1:
            row -= 1
        else:
            column -= 1


def word_error_rate(pairs: Sequence[tuple[str, str]]) -> float:
    """Of pairs of what was said and what was heard."""
    wrong = words = 0
    for said, heard in pairs:
        right = normalized(said)
        wrong += edit_table(right, normalized(heard))[-1][-1]
        words += len(right)
    return wrong / words


@dataclass(frozen=True, kw_only=True)
class Timing:
    """How far the times of words, or of segments, are apart.

    Attributes:
        count: Distances of the words that both transcripts have.
        distances: For each word, the larger distance of beginning and end, in seconds.
    """

    count: int
    distances: Sequence[float]

    def within(self, seconds: float) -> float:
        """The share of words with at most this distance."""
        near = sum(distance <= seconds + 1e-6 for distance in self.distances)
        return near / max(1, self.count)


def compare_times(pairs: Sequence[tuple[Sequence[Timed], Sequence[Timed]]]) -> Timing:
    """Compares what two transcripts of a recording have in common: their words, or segments."""
    distances = []
    for ours, theirs in pairs:
        texts = [[text.strip().lower() for text, *_ in timed] for timed in (ours, theirs)]
        for mine, other in matching(*texts):
            distances.append(
                max(abs(a - b) for a, b in zip(ours[mine][1:], theirs[other][1:], strict=True))
            )
    return Timing(count=len(distances), distances=distances)
