"""Output of ``shaperouter warm``: a live table, lines, or JSON."""

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
from shaperouter._cli._lattice import BY_INTEREST
from shaperouter._cli._tables import make_console
from shaperouter._graph import Graph, GraphState

_BAR = 30  # columns


class WarmOutput(ABC):
    """Shows the lists of graphs in order, and the result when its block ends without an error."""

    def __init__(self) -> None:
        """Starts the clock."""
        self._graphs: Sequence[Graph] = ()
        self._started = time.monotonic()

    def update(self, graphs: Sequence[Graph]) -> None:
        """Takes the next list."""
        self._show(graphs)
        self._graphs = graphs

    @abstractmethod
    def _show(self, graphs: Sequence[Graph]) -> None:
        """Shows a list; `_graphs` still has the previous one."""

    @abstractmethod
    def _end(self) -> None:
        """Shows the result."""

    def __enter__(self) -> Self:
        """Returns the output itself."""
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Shows the result unless the block failed."""
        if exc_type is None:
            self._end()


def warm_output_for(*, as_json: bool, address: str) -> WarmOutput:
    """Returns the output that suits the options and stdout.

    Args:
        as_json: Print JSON.
        address: Address of the service.
    """
    if as_json:
        return _JsonLines()
    console = make_console()
    if console.is_terminal and not console.is_dumb_terminal:
        return _LiveTable(console, address)
    return _Lines()


class _JsonLines(WarmOutput):
    """A line with an object for each list."""

    def _show(self, graphs: Sequence[Graph]) -> None:
        print_json({"graphs": graphs})

    def _end(self) -> None:
        """Does nothing: the last line has the final states."""


class _Lines(WarmOutput):
    """A line whenever the state of a graph changes; at the end, failures and a summary."""

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
    """A progress bar above a table of the graphs, which stays on the screen at the end."""

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
        """Does nothing: the next refresh shows it."""

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._live.transient = not self._graphs  # keep only a table
        self._live.stop()
        super().__exit__(exc_type, exc_value, traceback)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        elapsed = f"{time.monotonic() - self._started:.0f} s"
        if not self._graphs:
            yield Text(f"waiting for {self._address} … {elapsed}", style="dim")
            return
        ended = sum(graph.has_ended for graph in self._graphs)
        head = Table.grid(padding=(0, 2, 0, 0))
        bar = ProgressBar(total=len(self._graphs), completed=ended, width=_BAR)
        head.add_row(bar, progress(self._graphs), elapsed)
        yield head
        yield from _table(self._graphs, console.height - 3)


def _table(graphs: Sequence[Graph], room: int) -> RenderResult:
    """All graphs, or the most interesting ones if not all fit."""
    shown = graphs
    if len(graphs) > room:
        by_interest = sorted(graphs, key=lambda graph: BY_INTEREST.index(graph.state))
        shown = by_interest[: max(0, room - 1)]
    table = Table.grid(padding=(0, 2, 0, 0))
    for graph in shown:
        state = Text(graph.state, style=STYLES[graph.state])
        table.add_row(str(graph.signature), graph.worker, state, f"{graph.state_seconds:.0f} s")
    yield table
    if len(shown) < len(graphs):
        yield Text(f"… and {len(graphs) - len(shown)} more", style="dim")
