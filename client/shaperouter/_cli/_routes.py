"""How a request was routed, as tables on stderr."""

from collections.abc import Sequence

import click

from shaperouter._cli._tables import print_table
from shaperouter._generation import Route, RouteOption

_WORDS = ("", "worker", "prefill", "decode")
_NUMBERS = ("queue s", "stall s", "prefill s", "decode s", "total s")


def print_routes(routes: Sequence[Route]) -> None:
    """Prints a table for each route, the way that was taken first."""
    if not routes:
        click.echo("The service did not tell how it routed the request.", err=True)
    for number, route in enumerate(routes, 1):
        if len(routes) > 1:
            click.echo(f"Run {number} of {len(routes)}:", err=True)
        rows = [_row(option, taken=not place) for place, option in enumerate(route.options)]
        print_table((*_WORDS, *_NUMBERS), rows, words=len(_WORDS), err=True)


def _row(option: RouteOption, *, taken: bool) -> tuple[str, ...]:
    # What a graph computes its column says, and the model is the request's.
    kinds = (option.prefill.shape, option.decode.shape)
    seconds = (
        option.queue_seconds,
        option.stall_seconds,
        option.prefill_seconds,
        option.decode_seconds,
        option.total_seconds,
    )
    return (
        ">" if taken else "",
        option.worker,
        *(shape.partition(" ")[2] for shape in kinds),
        *(f"{each:.3f}" for each in seconds),
    )
