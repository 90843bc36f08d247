"""``shaperouter graphs``."""

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
from shaperouter._graph_stream import GraphStream

_WORDS = ("model", "signature", "worker", "state")
_NUMBERS = (
    *("traces", "compiles", "loads", "trace s", "compile s", "calls", "stalls"),
    *("device mean ms", "device total s"),
)


@click.command("graphs", cls=Command)
@click.option(
    "--model", default="", metavar="NAME", help="Only graphs of this model. [default: all]"
)
@click.option(
    "--all",
    "include_cold",
    is_flag=True,
    help="Also signatures that nobody has asked for yet. [default: only those asked for]",
)
@click.option(
    "--watch",
    is_flag=True,
    help="Show the ladders as they fill, until Ctrl-C; with --json print one object a line for "
    "each change. [default: list once]",
)
@click.pass_context
def graphs(ctx: click.Context, model: str, include_cold: bool, watch: bool) -> None:
    """Lists compiled graphs: what they cost and what they serve.

    A signature reads KIND ROWSxLENGTH, with "beams N" for N beams. Calls are the times the graph
    served (its hits), stalls the requests that waited for its compilation; one that was loaded from
    the cache was neither traced nor compiled. Counts and times are since the worker started.

    --watch shows a grid for each model, kind and beam width, rows by lengths: the state of each
    graph, with several workers on how many it is ready, and its share of all device time. Padded is
    the time that graphs computed padding where a smaller one would have done, missed the time that
    the absence of graphs cost, each with the shape that has most of it.
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
            "No graph yet: nobody has asked for one, or no worker is up (see: shaperouter models).",
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
                # The grids are of all there can be.
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
        return  # that is how a watch ends


def _show(stream: GraphStream, address: str) -> None:
    activity = Activity()
    console = make_console()
    # On the alternate screen, as `top` does: at the end, the terminal is as it was before.
    with Live(console=console, screen=True, auto_refresh=False) as live:
        for listed in stream:
            activity.update(listed, time.monotonic())
            live.update(GraphsView(address, listed, activity), refresh=True)
