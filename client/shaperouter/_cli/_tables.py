"""Tables and numbers for people to read."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

_UNLIMITED_WIDTH = 1_000  # columns if the output is not a terminal, so that nothing is cut
_GAP = 2  # columns between two columns of a table
_MAX_PARTS = 3  # parts of a table that is too wide


def make_console(*, err: bool = False) -> Console:
    """A console that prints text unchanged."""
    return Console(stderr=err, markup=False, emoji=False, highlight=False)


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, words: int, err: bool = False
) -> None:
    """Prints a table that breaks no word and no number, however narrow the terminal is.

    A table that is too wide is printed in parts, one below the other. If that needs too many parts,
    each row is printed as lines with a heading and a cell.

    Args:
        columns: The headings.
        rows: The cells, one for each heading.
        words: How many columns at the left contain words; every part has them. The others contain
            numbers and are aligned to the right.
        err: Whether to print on stderr. Default: on stdout.
    """
    console = make_console(err=err)
    if not console.is_terminal:
        console.width = _UNLIMITED_WIDTH
    all_columns = [
        _Column(heading=heading, cells=[row[i] for row in rows])
        for i, heading in enumerate(columns)
    ]
    first, numbers = all_columns[:words], all_columns[words:]
    parts = list(_parts(first, numbers, console.width))
    fits = all(_min_width([*first, *part]) <= console.width for part in parts)
    if fits and len(parts) <= _MAX_PARTS:
        tables = [_table(first, part, console.width) for part in parts]
    else:
        tables = [_record(columns, row) for row in rows]
    for number, table in enumerate(tables):
        if number:
            console.print()
        console.print(table)


@dataclass(frozen=True, kw_only=True)
class _Column:
    """A column and its width.

    Attributes:
        heading: The heading, which may be broken between words.
        cells: The cells, which are not broken.
    """

    heading: str
    cells: Sequence[str]

    @property
    def width(self) -> int:
        return max(map(cell_len, (self.heading, *self.cells)))

    @property
    def min_width(self) -> int:
        return max(map(cell_len, (*self.heading.split(), *self.cells)), default=0)


def _parts(
    first: Sequence[_Column], numbers: Sequence[_Column], width: int
) -> Iterator[Sequence[_Column]]:
    """Splits the columns of numbers into as few parts as fit beside the first columns."""
    part: list[_Column] = []
    for column in numbers:
        if part and _min_width([*first, *part, column]) > width:
            yield part
            part = []
        part.append(column)
    yield part


def _table(first: Sequence[_Column], numbers: Sequence[_Column], width: int) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    columns = [*first, *numbers]
    spare = width - _min_width(columns)
    for i, column in enumerate(columns):
        # From the left, headings are on one line while there is room.
        wider = min(spare, column.width - column.min_width)
        spare -= wider
        table.add_column(
            column.heading,
            justify="left" if i < len(first) else "right",
            width=column.min_width + wider,
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


def _min_width(columns: Sequence[_Column]) -> int:
    return sum(column.min_width for column in columns) + _GAP * (len(columns) - 1)


def human_count(number: int) -> str:
    """A count with three digits and a unit: 6.29 M."""
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= 0.9995 * size:  # a number that rounds to a whole unit is given in it
            return f"{number / size:.3g} {unit}"
    return str(number)


def megabytes(number: int) -> str:
    """Formats bytes in megabytes (10^6): one decimal, or two significant digits below 0.1."""
    size = number / 1e6
    return f"{size:,.1f}" if size >= 0.1 else f"{size:.2g}"


def percentages(shares: Mapping[str, float]) -> str:
    """Formats shares: ``gpt2 90%, gpt2-new 10%``."""
    return ", ".join(f"{name} {100 * share:g}%" for name, share in shares.items())
