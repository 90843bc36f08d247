"""Tables and numbers for people."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

_UNLIMITED_WIDTH = 1_000  # columns of what is not a terminal: nothing is cut


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, words: int) -> None:
    """Prints a table on stdout.

    Args:
        columns: Headings.
        rows: Cells, as many in each row as there are headings.
        words: How many of the first columns are words; the others are numbers, to the right.
    """
    console = Console(markup=False, emoji=False, highlight=False)
    if not console.is_terminal:
        console.width = _UNLIMITED_WIDTH
    table = Table(box=None, header_style="bold", pad_edge=False)
    for i, column in enumerate(columns):
        if i < words:
            table.add_column(column, overflow="fold")
        else:
            table.add_column(column, justify="right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def human_count(number: int) -> str:
    """A count with three digits and a unit: 6.29 M."""
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= 0.9995 * size:  # what rounds to a whole unit is told in it
            return f"{number / size:.3g} {unit}"
    return str(number)


def megabytes(number: int) -> str:
    """Bytes as megabytes (10^6), one decimal."""
    return f"{number / 1e6:,.1f}"
