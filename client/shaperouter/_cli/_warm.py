"""``shaperouter warm``."""

import math
from collections.abc import Iterator
from typing import TextIO

import click

from shaperouter._cli._command import Command, GroupedOption, connect, given_timeout, wants_json
from shaperouter._cli._warm_output import warm_output_for
from shaperouter._errors import InvalidArgumentError
from shaperouter._graph import Graph, GraphState
from shaperouter._signature import KNOWN_KINDS, GraphKind, Signature

_PRODUCT = "Signatures by rows and lengths"


def _rungs(
    ctx: click.Context, parameter: click.Parameter, value: str | None
) -> tuple[int, ...] | None:
    del ctx
    if value is None:
        return None
    try:
        return tuple(int(rung) for rung in value.split(","))
    except ValueError:
        raise click.BadParameter(
            f"must be integers separated by commas, got {value!r}", param=parameter
        ) from None


@click.command("warm", cls=Command)
@click.argument("signatures", nargs=-1, metavar="[SIGNATURE]...")
@click.option(
    "--file",
    type=click.File(encoding="utf-8"),
    metavar="FILE",
    help='Read signatures from FILE, one per line; "-" is stdin. [default: none]',
)
@click.option(
    "--worker",
    "workers",
    multiple=True,
    metavar="NAME",
    help="Worker to warm; can be repeated. [default: for each signature, the worker that gets "
    "its requests first]",
)
@click.option("--all-workers", is_flag=True, help="Warm all workers. [default: see --worker]")
@click.option(
    "--kind",
    cls=GroupedOption,
    group=_PRODUCT,
    type=click.Choice([kind.value for kind in KNOWN_KINDS]),
    help="Warm the signatures of this kind for every combination of --rows and --lengths. "
    "[default: none]",
)
@click.option(
    "--rows",
    cls=GroupedOption,
    group=_PRODUCT,
    callback=_rungs,
    metavar="N,...",
    help="Numbers of rows, separated by commas. [default: none]",
)
@click.option(
    "--lengths",
    cls=GroupedOption,
    group=_PRODUCT,
    callback=_rungs,
    metavar="N,...",
    help="Lengths in tokens, separated by commas. [default: none]",
)
@click.option(
    "--beams",
    cls=GroupedOption,
    group=_PRODUCT,
    type=int,
    metavar="N",
    help="Beam width. [default: 1]",
)
@click.option(
    "--model",
    cls=GroupedOption,
    group=_PRODUCT,
    metavar="NAME",
    help="Model of these signatures. [default: the only one of the service]",
)
@click.pass_context
def warm(
    ctx: click.Context,
    /,
    *,
    signatures: tuple[str, ...],
    file: TextIO | None,
    workers: tuple[str, ...],
    all_workers: bool,
    kind: str | None,
    rows: tuple[int, ...] | None,
    lengths: tuple[int, ...] | None,
    beams: int | None,
    model: str | None,
) -> None:
    """Compile graphs before traffic needs them, and wait until each is ready or has failed.

    A SIGNATURE reads "MODEL KIND ROWSxLENGTH", followed by "beams N" for beam search. Its numbers
    must be on the model's ladders, which "shaperouter models --json" lists.

    \b
    shaperouter warm "gpt2 prefill 1x16" "gpt2 decode 4x256 beams 4"
    shaperouter warm --file signatures.txt --all-workers
    shaperouter warm --kind decode --rows 1,2,4 --lengths 64,256

    Exit code 1 if a graph failed or was refused, with the reason on stderr. After Ctrl-C, the
    service still compiles the requested graphs. With --json, one object a line is printed for each
    change; the last one has the final states.
    """  # noqa: D301 (Click's mark of lines that are not filled)
    product = _product(ctx, kind=kind, rows=rows, lengths=lengths, beams=beams, model=model)
    wanted = [
        *(Signature.parse(text, field=f"SIGNATURE {i}") for i, text in enumerate(signatures, 1)),
        *(_read_signatures(file) if file else ()),
        *product,
    ]
    if not wanted:
        raise click.UsageError("give a SIGNATURE, --file, or --kind, --rows and --lengths", ctx)
    graphs: list[Graph] = []
    with (
        connect(ctx) as client,
        client.warm_graphs(
            list(dict.fromkeys(wanted)),
            workers=workers,
            all_workers=all_workers,
            timeout=given_timeout(ctx, default=math.inf),
        ) as stream,
        warm_output_for(as_json=wants_json(ctx), address=client.address) as output,
    ):
        for graphs in stream:
            output.update(graphs)
    all_ready = graphs and all(graph.state is GraphState.READY for graph in graphs)
    ctx.exit(0 if all_ready else 1)


def _product(
    ctx: click.Context,
    *,
    kind: str | None,
    rows: tuple[int, ...] | None,
    lengths: tuple[int, ...] | None,
    beams: int | None,
    model: str | None,
) -> list[Signature]:
    if kind is None and rows is None and lengths is None and beams is None and model is None:
        return []
    if kind is None or rows is None or lengths is None:
        raise click.UsageError("--kind, --rows and --lengths must be given together", ctx)
    return [
        Signature(
            model=model or "",
            kind=GraphKind(kind),
            rows=each,
            length=length,
            beams=1 if beams is None else beams,
        )
        for each in rows
        for length in lengths
    ]


def _read_signatures(file: TextIO) -> Iterator[Signature]:
    try:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield Signature.parse(line.strip(), field=f"{file.name}, line {number}")
    except UnicodeDecodeError as error:
        raise InvalidArgumentError.of(file.name, f"is not UTF-8: {error.reason}") from None
