"""The screen of ``shaperouter graphs --watch``: lattices of graphs, and workers below them."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from shaperouter._cli._activity import INTERVAL, Activity
from shaperouter._cli._lattice import Cell, Lattice, lattices
from shaperouter._graph import Graph, GraphState

STYLES = {
    GraphState.READY: "green",
    GraphState.COMPILING: "yellow",
    GraphState.TRACING: "yellow",
    GraphState.QUEUED: "yellow",
    GraphState.FAILED: "bold red",
    GraphState.COLD: "dim",
    GraphState.UNKNOWN: "dim",
}
_SYMBOLS = {
    GraphState.READY: "●",
    GraphState.COMPILING: "◐",
    GraphState.TRACING: "○",
    GraphState.QUEUED: "◌",
    GraphState.FAILED: "✗",
    GraphState.COLD: "·",
    GraphState.UNKNOWN: "?",
}
_IN_PROGRESS = (GraphState.QUEUED, GraphState.TRACING, GraphState.COMPILING)

_Column: TypeAlias = list[str | Text]  # a heading and cells

_ROWS = "rows"
_CELL = 5  # minimum columns of a cell, so that grids move little as shares appear: "● 45%"
_MIN_SHARE = 0.005  # smaller ones would round to 0%


class GraphsView:
    """One screen, for terminals of any size. It says how much did not fit."""

    def __init__(self, address: str, graphs: Sequence[Graph], activity: Activity) -> None:
        """Takes the data to show.

        Args:
            address: Address of the service.
            graphs: The graphs of all workers, including cold ones.
            activity: The activity, updated with these graphs.
        """
        self._address = address
        self._graphs = graphs
        self._activity = activity

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Lattices, in as many lines as fit, and workers below them."""
        upper = _lines(console, options, self._upper(options.max_width))
        lower = _lines(console, options, self._lower())
        room = (options.height or options.max_height) - len(lower)
        if len(upper) > room:
            kept = max(0, room - 1)
            note = f"… {len(upper) - kept} more lines: enlarge the terminal, or choose a --model"
            cut = Text(note, style="yellow", no_wrap=True, overflow="ellipsis")
            upper = upper[:kept] + _lines(console, options, [cut])
        for line in upper + lower:
            yield from line
            yield Segment.line()

    def _upper(self, width: int) -> Iterator[RenderableType]:
        count = len(self._activity.workers)
        workers = f"{count} worker{'s' if count != 1 else ''}"
        yield _line(f"{self._address} · {workers} · Ctrl-C ends", style="dim")
        cold = []
        for lattice in lattices(self._graphs):
            if set(lattice.states) == {GraphState.COLD}:
                cold.append(f"{lattice.title} ({len(lattice.cells)})")
                continue
            yield Text()
            yield _heading(lattice)
            columns = [self._column(lattice, length) for length in lattice.lengths]
            for chunk in _chunks(columns, width):
                yield _grid(lattice.rows, chunk)
            yield from _failures(lattice)
        if cold:
            yield Text()
            yield Text(f"All cold: {', '.join(cold)}", style="dim")

    def _lower(self) -> Iterator[RenderableType]:
        yield Text()
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("worker", no_wrap=True)
        for heading in ("busy", "ready", "on the way", "failed", "device s"):
            table.add_column(heading, justify="right")
        for worker in self._activity.workers:
            own = [graph for graph in self._graphs if graph.worker == worker]
            states = Counter(graph.state for graph in own)
            busy = self._activity.utilization(worker)
            table.add_row(
                worker,
                "-" if busy is None else f"{busy:.0%}",
                str(states[GraphState.READY]),
                str(sum(states[state] for state in _IN_PROGRESS)),
                str(states[GraphState.FAILED]),
                f"{sum(graph.device_seconds.sum for graph in own):.1f}",
            )
        yield table
        for worker in self._activity.workers:
            first = [g for g in self._graphs if g.worker == worker and g.before_ready]
            if not all(graph.has_ended for graph in first):
                yield _line(f"{worker} starts: {progress(first)}", style="yellow")
        legend = _line("", style="dim")
        for state in (
            GraphState.READY,
            *reversed(_IN_PROGRESS),
            GraphState.FAILED,
            GraphState.COLD,
        ):
            legend.append(_SYMBOLS[state], style=STYLES[state]).append(f" {state}  ")
        yield legend.append(f"%: device, last {INTERVAL:.0f} s")

    def _column(self, lattice: Lattice, length: str) -> _Column:
        """The heading and the cells of one length, a cell for each number of rows."""
        cells = [lattice.cells.get((rows, length)) for rows in lattice.rows]
        states = [_state(cell) if cell else Text() for cell in cells]
        shares = [self._activity.share(cell.signature) if cell else 0.0 for cell in cells]
        width = max(text.cell_len for text in states)
        for text, share in zip(states, shares, strict=True):
            if share >= _MIN_SHARE:
                text.pad_right(width - text.cell_len)
                text.append(f"{share:>4.0%}")
        return [length, *states]


def progress(graphs: Sequence[Graph]) -> str:
    """How many graphs are ready, and the expected time until all are."""
    text = (
        f"{sum(graph.state is GraphState.READY for graph in graphs)} of {len(graphs)} graphs ready"
    )
    left = max((graph.left_seconds for graph in graphs), default=0.0)
    return f"{text}, about {math.ceil(left)} s left" if left else text


def _heading(lattice: Lattice) -> Text:
    """The lattice's title, how many of its graphs are ready, and what its shapes have cost."""
    heading = Text(lattice.title, style="bold")
    states = lattice.states
    parts = [f" · {states[GraphState.READY]} of {states.total()} ready"]
    for name, seconds in (
        ("padded", {cell.signature: cell.padded_seconds for cell in lattice.cells.values()}),
        ("missed", {cell.signature: cell.missed_seconds for cell in lattice.cells.values()}),
    ):
        total = sum(seconds.values())
        if total > 0:
            costliest = max(seconds, key=lambda signature: seconds[signature])
            parts.append(f" · {name} {total:.1f} s ({costliest.rows}x{costliest.length_text})")
    return heading.append("".join(parts), style="not bold")


def _state(cell: Cell) -> Text:
    """The symbol of a cell, and with several workers the number of those that have it ready."""
    state = cell.state
    text = _SYMBOLS[state]
    if len(cell.graphs) > 1 and state is not GraphState.COLD:
        # The count itself says that some are ready.
        symbol = "" if state is GraphState.READY else _SYMBOLS[state]
        text = f"{symbol}{cell.ready}/{len(cell.graphs)}"
    return Text(text, style=STYLES[state])


def _chunks(columns: Sequence[_Column], width: int) -> Iterator[list[_Column]]:
    """Splits columns into as few grids as fit the width."""
    chunk: list[_Column] = []
    used = len(_ROWS)
    for column in columns:
        needed = 1 + max(_CELL, *(cell_len(str(cell)) for cell in column))
        if chunk and used + needed > width:
            yield chunk
            chunk, used = [], len(_ROWS)
        chunk.append(column)
        used += needed
    yield chunk


def _grid(rows: Sequence[int], columns: Sequence[_Column]) -> Table:
    grid = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    grid.add_column(_ROWS, justify="right", style="dim", no_wrap=True)
    for heading, *_ in columns:
        grid.add_column(heading, min_width=_CELL, no_wrap=True)
    for rung, *cells in zip(map(str, rows), *(column[1:] for column in columns), strict=True):
        if any(cells):
            grid.add_row(rung, *cells)
    return grid


def _failures(lattice: Lattice) -> Iterator[Text]:
    for cell in lattice.cells.values():
        for graph in cell.graphs:
            if graph.state is GraphState.FAILED:
                shape = f"{graph.signature.rows}x{graph.signature.length_text}"
                reason = " ".join(graph.error.split())
                yield _line(
                    f"{_SYMBOLS[GraphState.FAILED]} {shape} on {graph.worker}: {reason}",
                    style=STYLES[GraphState.FAILED],
                )


def _line(text: str, *, style: str) -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def _lines(
    console: Console, options: ConsoleOptions, parts: Iterator[RenderableType] | list[Text]
) -> list[list[Segment]]:
    free = options.update(height=None)
    return [line for part in parts for line in console.render_lines(part, free, pad=False)]
