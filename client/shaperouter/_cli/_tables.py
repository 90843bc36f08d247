"""Tables and numbers for people."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

_UNLIMITED_WIDTH = 1_000  # columns of what is not a terminal: nothing is cut
_GAP = 2  # columns between two columns of a table
_MOST_PARTS = 3  # of a table that is too wide


def make_console(*, err: bool = False) -> Console:
    """A console that prints what it is given as it is."""
    return Console(stderr=err, markup=False, emoji=False, highlight=False)


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, words: int, err: bool = False
) -> None:
    """Prints a table that breaks no word and no number, whatever the terminal's width.

    Where not all columns fit beside one another they are printed in parts, one below the other; and
    where that would be many, each row is printed as lines of heading and cell.

    Args:
        columns: Headings.
        rows: Cells, as many in each row as there are headings.
        words: How many of the first columns are words, which each part has; the others are numbers,
            to the right.
        err: On stderr. Default: on stdout.
    """
    console = make_console(err=err)
    if not console.is_terminal:
        console.width = _UNLIMITED_WIDTH
    made = [
        _Column(heading=heading, cells=[row[i] for row in rows])
        for i, heading in enumerate(columns)
    ]
    first, numbers = made[:words], made[words:]
    parts = list(_parts(first, numbers, console.width))
    fits = all(_least_width([*first, *part]) <= console.width for part in parts)
    if fits and len(parts) <= _MOST_PARTS:
        tables = [_table(first, part, console.width) for part in parts]
    else:
        tables = [_record(columns, row) for row in rows]
    for number, table in enumerate(tables):
        if number:
            console.print()
        console.print(table)


@dataclass(frozen=True, kw_only=True)
class _Column:
    """A column, and how wide it is.

    Attributes:
        heading: Its words may stand below one another.
        cells: Are not broken.
    """

    heading: str
    cells: Sequence[str]

    @property
    def width(self) -> int:
        return max(map(cell_len, (self.heading, *self.cells)))

    @property
    def least_width(self) -> int:
        return max(map(cell_len, (*self.heading.split(), *self.cells)), default=0)


def _parts(
    first: Sequence[_Column], numbers: Sequence[_Column], width: int
) -> Iterator[Sequence[_Column]]:
    """The columns of numbers, in as few parts as fit beside the first columns."""
    part: list[_Column] = []
    for column in numbers:
        if part and _least_width([*first, *part, column]) > width:
            yield part
            part = []
        part.append(column)
    yield part


def _table(first: Sequence[_Column], numbers: Sequence[_Column], width: int) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    columns = [*first, *numbers]
    spare = width - _least_width(columns)
    for i, column in enumerate(columns):
        # Headings are on one line as long as there is room, from the left.
        wider = min(spare, column.width - column.least_width)
        spare -= wider
        table.add_column(
            column.heading,
            justify="left" if i < len(first) else "right",
            width=column.least_width + wider,
        )
    for cells in zip(*(column.cells for column in columns), strict=True):
        table.add_row(*cells)
    return table


def _record(columns: Sequence[str], row: Sequence[str]) -> Table:
    record = Table.grid(padding=(0, _GAP, 0, 0))
    record.add_column(style="bold", no_wrap=True)
    record.add_column(overflow="fold")
    for heading, cell in zip(columns, row, strict=True):
        record.add_row(heading, cell)
    return record


def _least_width(columns: Sequence[_Column]) -> int:
    return sum(column.least_width for column in columns) + _GAP * (len(columns) - 1)


def human_count(number: int) -> str:
    """A count with three digits and a unit: 6.29 M."""
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= 0.9995 * size:  # what rounds to a whole unit is told in it
            return f"{number / size:.3g} {unit}"
    return str(number)


def megabytes(number: int) -> str:
    """Formats bytes in megabytes (10^6): one decimal, or two significant digits below 0.1."""
    size = number / 1e6
    return f"{size:,.1f}" if size >= 0.1 else f"{size:.2g}"
