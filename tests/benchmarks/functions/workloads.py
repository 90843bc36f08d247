"""Texts, and the ways in which they are sent."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

# Words of a text: log-normal, so most texts are a sentence and a few fill the model.
MEDIAN_WORDS, SPREAD, MOST_WORDS = 18, 0.8, 220
BATCH = 32


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Texts, and how they are sent.

    Attributes:
        name: Name in the JSON file.
        label: Label in tables.
        calls: The texts of each call.
        callers: Number of calls at a time.
    """

    name: str
    label: str
    calls: Sequence[Sequence[str]]
    callers: int

    @property
    def texts(self) -> int:
        """Number of texts."""
        return sum(map(len, self.calls))


def workloads(model: Path) -> list[Workload]:
    """The workloads.

    Args:
        model: Directory of the model, whose vocabulary gives the words.
    """
    vocabulary = (model / "vocab.txt").read_text(encoding="utf-8").split()
    words = [word for word in vocabulary if word.isascii() and word.isalpha()]
    rng = random.Random(0)

    def text() -> str:
        count = min(MOST_WORDS, max(3, round(MEDIAN_WORDS * rng.lognormvariate(0, SPREAD))))
        return " ".join(rng.choices(words, k=count))

    def texts(count: int) -> list[str]:
        return [text() for _ in range(count)]

    return [
        Workload(
            name="single",
            label="single texts, one after the other",
            calls=[[each] for each in texts(64)],
            callers=1,
        ),
        Workload(
            name="batches",
            label=f"batches of {BATCH}",
            calls=[texts(BATCH) for _ in range(8)],
            callers=1,
        ),
        Workload(
            name="callers",
            label=f"{BATCH} callers with single texts",
            calls=[[each] for each in texts(8 * BATCH)],
            callers=BATCH,
        ),
    ]
