"""How a request was routed, as tables on stderr."""

from collections.abc import Sequence

import click

from shaperouter._cli._tables import print_table
from shaperouter._generation import Route, RouteOption
from shaperouter._signature import Signature

_RUN = ("queue s", "stall s", "prefill s", "decode s", "total s")
_CALL = ("queue s", "stall s", "call s", "total s")


def print_routes(routes: Sequence[Route]) -> None:
    """Prints a table for each route; its first option was taken."""
    if not routes:
        click.echo("The service did not report how it routed the request.", err=True)
    for number, route in enumerate(routes, 1):
        if len(routes) > 1:
            click.echo(f"Run {number} of {len(routes)}:", err=True)
        kinds = [
            kind
            for kind in ("encode", "prefill", "decode", "call")
            if any(getattr(option, kind) for option in route.options)
        ]
        words = ("", "worker", *kinds)
        rows = [_row(option, kinds, taken=not index) for index, option in enumerate(route.options)]
        seconds = _CALL if "call" in kinds else _RUN
        print_table((*words, *seconds), rows, words=len(words), err=True)


def _row(option: RouteOption, kinds: Sequence[str], *, taken: bool) -> tuple[str, ...]:
    graphs: list[Signature | None] = [getattr(option, kind) for kind in kinds]
    own = (
        [option.call_seconds]
        if option.call is not None
        else [option.prefill_seconds, option.decode_seconds]
    )
    seconds = (option.queue_seconds, option.stall_seconds, *own, option.total_seconds)
    return (
        ">" if taken else "",
        option.worker,
        # Only the sizes: the column gives the kind, and the model is the request's.
        *(graph.shape.partition(" ")[2] if graph else "" for graph in graphs),
        *(f"{each:.3f}" for each in seconds),
    )
