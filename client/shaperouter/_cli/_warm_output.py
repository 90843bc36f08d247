"""Showing how graphs are made ready: a live table, lines, or JSON."""

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import zip_longest
from types import TracebackType
from typing import Self

import click
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from shaperouter._cli._graphs_view import STYLES, progress
from shaperouter._cli._json import print_json
from shaperouter._cli._lattice import NOTABLE
from shaperouter._cli._tables import make_console
from shaperouter._graph import Graph, GraphState

_ENDS = {GraphState.READY, GraphState.FAILED}
_BAR = 30  # columns


class WarmOutput(ABC):
    """Takes the lists of a warming in their order; a context, whose normal end is the warming's."""

    def __init__(self) -> None:
        """Starts the clock."""
        self._graphs: Sequence[Graph] = ()
        self._started = time.monotonic()

    def update(self, graphs: Sequence[Graph]) -> None:
        """The graphs have come so far."""
        self._show(graphs)
        self._graphs = graphs

    @abstractmethod
    def _show(self, graphs: Sequence[Graph]) -> None:
        """Shows graphs; those that were shown before are still `_graphs`."""

    @abstractmethod
    def _end(self) -> None:
        """Says how it ended."""

    def __enter__(self) -> Self:
        """Returns the output itself."""
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Says how it ended, unless it was broken off."""
        if exc_type is None:
            self._end()


def warm_output_for(*, as_json: bool, address: str) -> WarmOutput:
    """The way to show that the options and stdout ask for.

    Args:
        as_json: Print JSON.
        address: Where the service is.
    """
    if as_json:
        return _JsonLines()
    console = make_console()
    if console.is_terminal and not console.is_dumb_terminal:
        return _LiveTable(console, address)
    return _Lines()


class _JsonLines(WarmOutput):
    """One object a line for each list."""

    def _show(self, graphs: Sequence[Graph]) -> None:
        print_json({"graphs": graphs})

    def _end(self) -> None:
        """The last line has said it."""


class _Lines(WarmOutput):
    """A line for each graph whenever its state has changed; at the end reasons and a summary."""

    def _show(self, graphs: Sequence[Graph]) -> None:
        for graph, before in zip_longest(graphs, self._graphs):
            if before is None or graph.state is not before.state:
                click.echo(f"{graph.signature} on {graph.worker}: {graph.state}")

    def _end(self) -> None:
        for graph in self._graphs:
            if graph.state is GraphState.FAILED:
                click.echo(f"{graph.signature} on {graph.worker} failed: {graph.error}", err=True)
        click.echo(f"{progress(self._graphs)} after {time.monotonic() - self._started:.1f} s")


class _LiveTable(_Lines):
    """A progress bar over a table of the graphs, which stays when all has ended."""

    def __init__(self, console: Console, address: str) -> None:
        super().__init__()
        self._address = address
        self._live = Live(
            console=console,
            get_renderable=lambda: self,
            refresh_per_second=4,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def _show(self, graphs: Sequence[Graph]) -> None:
        """The next refresh does it."""

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._live.transient = not self._graphs  # nothing came that should stay to be read
        self._live.stop()
        super().__exit__(exc_type, exc_value, traceback)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        elapsed = f"{time.monotonic() - self._started:.0f} s"
        if not self._graphs:
            yield Text(f"waiting for {self._address} … {elapsed}", style="dim")
            return
        ended = sum(graph.state in _ENDS for graph in self._graphs)
        head = Table.grid(padding=(0, 2, 0, 0))
        bar = ProgressBar(total=len(self._graphs), completed=ended, width=_BAR)
        head.add_row(bar, progress(self._graphs), elapsed)
        yield head
        yield from _table(self._graphs, console.height - 3)


def _table(graphs: Sequence[Graph], room: int) -> RenderResult:
    """All graphs, or those to look at first where there is not room for all."""
    shown = graphs
    if len(graphs) > room:
        notable = sorted(graphs, key=lambda graph: NOTABLE.index(graph.state))
        shown = notable[: max(0, room - 1)]
    table = Table.grid(padding=(0, 2, 0, 0))
    for graph in shown:
        state = Text(graph.state, style=STYLES[graph.state])
        table.add_row(str(graph.signature), graph.worker, state, f"{graph.state_seconds:.0f} s")
    yield table
    if len(shown) < len(graphs):
        yield Text(f"… and {len(graphs) - len(shown)} more", style="dim")
