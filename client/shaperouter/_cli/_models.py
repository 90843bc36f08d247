"""``shaperouter models``."""

import click

from shaperouter._cli._command import Command, connect, wants_json
from shaperouter._cli._json import print_json
from shaperouter._cli._tables import human_count, megabytes, percentages, print_table
from shaperouter._model import Model

_COLUMNS = (
    *("model", "family", "dtype", "parameters", "max source", "max length", "slots"),
    *("weights MB", "kv cache MB", "workers"),
)


@click.command("models", cls=Command)
@click.pass_context
def models(ctx: click.Context) -> None:
    """List the models of the service and their limits.

    Lengths are in tokens; max source is the limit of sources, for models with an encoder. Memory
    is that of one device, in megabytes (10^6 bytes). The kv cache column has the current size of
    the caches and their size when every slot runs a request of full length. Functions and text
    encoders have no slots and no caches. The last column, if there is one, has the models of an
    alias, or the revisions that were loaded while the service runs, with their percentages.
    """
    with connect(ctx) as client:
        listed = client.models()
    if wants_json(ctx):
        print_json({"models": listed})
    elif listed:
        columns, rows = [*_COLUMNS], [_row(model) for model in listed]
        if any(map(_goes_to, listed)):
            columns.append("requests go to")
            rows = [(*row, _goes_to(model)) for row, model in zip(rows, listed, strict=True)]
        print_table(columns, rows, words=3)
    else:
        click.echo("No model is loaded yet.", err=True)


def _row(model: Model) -> tuple[str, ...]:
    return (
        model.name,
        model.family,
        model.weight_dtype or model.dtype,
        human_count(model.parameters),
        str(model.max_source_length) if model.max_source_length else "",
        str(model.max_length) if model.max_length else "",
        str(model.slots) if model.slots else "",
        megabytes(model.weight_bytes),
        _cache(model),
        str(model.ready_workers),
    )


def _goes_to(model: Model) -> str:
    """Where requests go, unless to the only revision of a model that workers started with."""
    return "" if set(model.targets) <= {model.name} else percentages(model.targets)


def _cache(model: Model) -> str:
    """The size of the caches now and at most; empty for a model that answers once."""
    if not model.slots:
        return ""
    positions = model.max_length + model.max_source_length
    maximum = model.slots * positions * model.kv_cache_bytes_per_token
    return f"{megabytes(model.kv_cache_bytes)} of {megabytes(maximum)}"
