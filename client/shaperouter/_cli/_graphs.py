"""``shaperouter graphs``."""

import itertools
import math
import time

import click
from rich.live import Live

from shaperouter._cli._activity import Activity
from shaperouter._cli._command import Command, connect, given_timeout, wants_json
from shaperouter._cli._graphs_view import GraphsView
from shaperouter._cli._json import print_json
from shaperouter._cli._tables import make_console, print_table
from shaperouter._graph import Graph, GraphState
from shaperouter._streams import GraphStream

_WORDS = ("model", "signature", "worker", "state")
_NUMBERS = (
    *("traces", "compiles", "loads", "trace s", "compile s", "calls", "stalls"),
    *("device mean ms", "device total s"),
)


@click.command("graphs", cls=Command)
@click.option(
    "--model", default="", metavar="NAME", help="List only graphs of this model. [default: all]"
)
@click.option(
    "--all",
    "include_cold",
    is_flag=True,
    help="Also list signatures that nobody has requested yet. [default: only requested ones]",
)
@click.option(
    "--watch",
    is_flag=True,
    help="Show the states of all graphs as they change, until Ctrl-C. With --json, print one "
    "object a line for each change. [default: list once]",
)
@click.pass_context
def graphs(ctx: click.Context, model: str, include_cold: bool, watch: bool) -> None:
    """List compiled graphs: what they cost and what they serve.

    A signature reads KIND ROWSxLENGTH, followed by "beams N" for beam search. Calls counts how
    often the graph ran; stalls counts the requests that waited for its compilation. A graph that
    was loaded from the cache was neither traced nor compiled. Counts and times begin with the
    worker's process.

    --watch shows one grid for each model, kind and beam width, with a row for each number of rows
    and a column for each length. A cell has the state of the graph, the number of workers that have
    it ready if there are several, and its share of all device time. Padded is the time that graphs
    spent on padding that a smaller graph would have saved. Missed is the time that missing graphs
    cost. Both name the shape with the largest share.
    """
    if watch:
        _watch(ctx, model, include_cold)
        return
    with connect(ctx) as client:
        listed = client.graphs(model, include_cold=include_cold)
    if wants_json(ctx):
        print_json({"graphs": listed})
        return
    if not listed:
        click.echo(
            "No graphs yet: none was requested, or no worker is up (see: shaperouter models).",
            err=True,
        )
        return
    print_table((*_WORDS, *_NUMBERS), [_row(graph) for graph in listed], words=len(_WORDS))
    for graph in listed:
        if graph.state is GraphState.FAILED:
            click.echo(f"{graph.signature} on {graph.worker} failed: {graph.error}")


def _row(graph: Graph) -> tuple[str, ...]:
    mean = graph.device_seconds.mean
    return (
        graph.signature.model,
        graph.signature.shape,
        graph.worker,
        str(graph.state),
        str(graph.traces),
        str(graph.compiles),
        str(graph.loads),
        f"{graph.trace_seconds:.2f}",
        f"{graph.compile_seconds.sum:.2f}",
        str(graph.device_seconds.count),
        str(graph.stall_seconds.count),
        "-" if mean is None else f"{mean * 1e3:.2f}",
        f"{graph.device_seconds.sum:.2f}",
    )


def _watch(ctx: click.Context, model: str, include_cold: bool) -> None:
    as_json = wants_json(ctx)
    console = make_console()
    if not as_json and (not console.is_terminal or console.is_dumb_terminal):
        raise click.UsageError("--watch needs a terminal, or --json", ctx)
    try:
        with (
            connect(ctx) as client,
            client.watch_graphs(
                model,
                # The grids show all signatures.
                include_cold=include_cold or not as_json,
                timeout=given_timeout(ctx, default=math.inf),
            ) as stream,
        ):
            if as_json:
                for listed in stream:
                    print_json({"graphs": listed})
            else:
                _show(stream, client.address)
    except KeyboardInterrupt:
        return  # Ctrl-C is how a watch ends


def _show(stream: GraphStream, address: str) -> None:
    activity = Activity()
    console = make_console()
    # Taken first, because the attempts to reach an absent service take seconds.
    first = list(itertools.islice(stream, 1))
    # The alternate screen, as `top` uses: afterwards the terminal is as it was before.
    with Live(console=console, screen=True, auto_refresh=False) as live:
        for listed in itertools.chain(first, stream):
            activity.update(listed, time.monotonic())
            live.update(GraphsView(address, listed, activity), refresh=True)
