"""``shaperouter embed``."""

from collections.abc import Sequence

import click

from shaperouter._cli._command import Command, connect, wants_json
from shaperouter._cli._json import print_json
from shaperouter._cli._stdin import read_stdin
from shaperouter._cli._waiting import WaitingLine


@click.command("embed", cls=Command, field_names={"text": "TEXT", "inputs.text": "TEXT"})
@click.argument("texts", nargs=-1, metavar="[TEXT]...")
@click.option(
    "--model",
    default="",
    metavar="NAME",
    help="Model to use. [default: the only one that can be called]",
)
@click.option(
    "--truncate",
    is_flag=True,
    help="Cut texts that are too long for the model. [default: they are refused]",
)
@click.pass_context
def embed(ctx: click.Context, /, *, texts: Sequence[str], model: str, truncate: bool) -> None:
    """Print an embedding of each TEXT, or of each line of stdin.

    Each embedding is one line: an object with text and embedding. With --json, there is one object
    with all vectors and how they were computed.
    """
    texts = texts or _lines(read_stdin("text"))
    with connect(ctx) as client, WaitingLine(enabled=not wants_json(ctx)) as waiting:
        waiting.show(f"waiting for {client.address}")
        result = client.embed(texts, model=model, truncate=truncate)
    if wants_json(ctx):
        print_json(result)
        return
    for text, vector in zip(texts, result.vectors, strict=True):
        print_json({"text": text, "embedding": vector})


def _lines(text: str) -> list[str]:
    """The lines of a file. `splitlines` would also end them at characters such as U+2028."""
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]
