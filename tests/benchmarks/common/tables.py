"""Figures and targets as tables, for terminals and for documents."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.table import Table as RichTable

NOTHING = "–"
# Maximum width of a cell that is kept on one line: enough for figures, while longer text wraps.
LONGEST_FIGURE = 24


def quantile(values: Sequence[float], share: float) -> float:
    """The quantile of values at a share; None without values."""
    known = sorted(values)
    return known[math.ceil(share * len(known)) - 1] if known else math.nan


@dataclass(frozen=True, kw_only=True)
class Spread:
    """The repeated values of a figure.

    Attributes:
        median: Their median.
        min: The smallest value.
        max: The largest value.
    """

    median: float
    min: float
    max: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Summarizes values."""
        return cls(median=statistics.median(values), min=min(values), max=max(values))

    def show(self, form: str = ".2f", *, factor: float = 1) -> str:
        """The median, and the largest deviation from it if there are several values."""
        if self.min == self.max:
            return f"{self.median * factor:{form}}"
        deviation = max(self.max - self.median, self.median - self.min) / self.median
        return f"{self.median * factor:{form}} ±{deviation:.0%}"

    def show_range(self, form: str = ".3f") -> str:
        """The median, and the range if there are several values."""
        if self.min == self.max:
            return f"{self.median:{form}}"
        return f"{self.median:{form}} ({self.min:{form}}–{self.max:{form}})"


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table, for terminals and for Markdown.

    Attributes:
        title: Its title.
        head: Headings of its columns.
        rows: Cells; the first of each row is its name.
        note: How to read it.
    """

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    def show(self, console: Console) -> None:
        """Prints the table."""
        table = RichTable(box=box.SIMPLE, title=self.title, caption=self.note or None)
        for index, name in enumerate(self.head):
            # Figures stay on one line; names may take several, but do not break words.
            whole = [row[index] for row in self.rows] if index else []
            names = [name] if index else [row[0] for row in self.rows]
            words = " ".join(names).split()
            table.add_column(
                name,
                justify="right" if index else "left",
                min_width=min(LONGEST_FIGURE, max(map(len, whole + words), default=0)),
                overflow="fold",
            )
        for row in self.rows:
            table.add_row(*row)
        console.print(table)

    def markdown(self) -> str:
        """The table as Markdown."""
        lines = [self.head, ["---", *["---:"] * (len(self.head) - 1)], *self.rows]
        table = "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
        return "\n\n".join(part for part in (f"**{self.title}**", table, self.note) if part)


@dataclass(frozen=True, kw_only=True)
class Target:
    """A target and its measured value.

    Attributes:
        text: The target in words.
        limit: Maximum of the median.
        figure: The measured value; None if there is none.
    """

    text: str
    limit: float
    figure: Spread | None

    @property
    def verdict(self) -> str:
        """The verdict, in a word or two."""
        if self.figure is None:
            return "not measured"
        return "met" if self.figure.median <= self.limit else "missed"


def targets_table(targets: Sequence[Target]) -> Table:
    """Targets with their measured values and verdicts."""
    return Table(
        title="Targets",
        head=["", "at most", "measured", "verdict"],
        rows=[
            [
                target.text,
                f"{target.limit:g}",
                target.figure.show_range() if target.figure else NOTHING,
                target.verdict,
            ]
            for target in targets
        ],
    )
