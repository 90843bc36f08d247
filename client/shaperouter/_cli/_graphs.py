"""``shaperouter graphs``."""

import click

from shaperouter._cli._command import Command, connect, wants_json
from shaperouter._cli._json import print_json
from shaperouter._cli._tables import print_table
from shaperouter._graph import Graph, GraphState

_WORDS = ("model", "signature", "worker", "state")
_NUMBERS = (
    *("traces", "compiles", "trace s", "compile s", "calls", "stalls"),
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
@click.pass_context
def graphs(ctx: click.Context, model: str, include_cold: bool) -> None:
    """Lists compiled graphs: what they cost and what they serve.

    A signature reads KIND ROWSxLENGTH, with bN for N beams. Calls are the times the graph served
    (its hits), stalls the requests that waited for its compilation. Counts and times are since the
    worker started.
    """
    with connect(ctx) as client:
        listed = client.graphs(model, include_cold=include_cold)
    if wants_json(ctx):
        print_json({"graphs": listed})
        return
    if not listed:
        click.echo("No graph yet: the first request of a shape compiles one.", err=True)
        return
    print_table((*_WORDS, *_NUMBERS), [_row(graph) for graph in listed], words=len(_WORDS))
    for graph in listed:
        if graph.state is GraphState.FAILED:
            click.echo(f"{graph.signature} on {graph.worker} failed: {graph.error}")


def _row(graph: Graph) -> tuple[str, ...]:
    mean = graph.device_seconds.mean
    return (
        graph.signature.model,
        str(graph.signature),
        graph.worker,
        str(graph.state),
        str(graph.traces),
        str(graph.compiles),
        f"{graph.trace_seconds:.2f}",
        f"{graph.compile_seconds.sum:.2f}",
        str(graph.device_seconds.count),
        str(graph.stall_seconds.count),
        "-" if mean is None else f"{mean * 1e3:.2f}",
        f"{graph.device_seconds.sum:.2f}",
    )
