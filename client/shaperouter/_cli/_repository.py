"""``shaperouter load``, ``shaperouter unload`` and ``shaperouter alias``."""

import math
from typing import Any

import click

from shaperouter._cli._command import Command, connect, given_timeout, wants_json
from shaperouter._cli._json import print_json
from shaperouter._cli._tables import percentages
from shaperouter._cli._waiting import WaitingLine


@click.command("load", cls=Command)
@click.argument("name", metavar="NAME[=LOCATION]")
@click.option(
    "--canary",
    type=click.FloatRange(0, 100, min_open=True),
    metavar="PERCENT",
    help="Send only this percentage of the requests to it; the revision that serves now keeps the "
    "rest. Load it again with another percentage to change that, or without to promote it. Load "
    "the old revision again to roll back.",
)
@click.pass_context
def load(ctx: click.Context, name: str, canary: float | None) -> None:
    """Load a model while the service runs, or a new revision of one behind its name.

    NAME is what requests use. LOCATION is where the files are: a path below the directory of
    --model-repository, which is NAME if it is left out.

    The workers load the model and make its graphs beside the models that serve now. Then new
    requests get it, and running ones finish on the old revision, whose memory is freed after that.
    If a worker cannot load it, nothing changes, and the error says why. The same happens if the
    command is interrupted.

    With tokens, only operators may do this.

    \b
    shaperouter load gpt2=gpt2-tuned-3
    shaperouter load gpt2=gpt2-tuned-4 --canary 10
    """  # noqa: D301 (Click's mark of lines that are not filled)
    model, _, location = name.partition("=")
    with connect(ctx) as client, WaitingLine(enabled=not wants_json(ctx)) as waiting:
        waiting.show(f"loading {model}")
        share = 1.0 if canary is None else canary / 100
        loaded = client.load_model(
            model, location, share=share, timeout=given_timeout(ctx, default=math.inf)
        )
    if wants_json(ctx):
        print_json({"model": loaded})
    elif len(loaded.targets) > 1:
        click.echo(f"{loaded.name}: {percentages(loaded.targets)}")
    else:
        click.echo(f"{loaded.name} serves revision {loaded.revision[:12]}")


@click.command("unload", cls=Command)
@click.argument("name")
@click.pass_context
def unload(ctx: click.Context, name: str) -> None:
    """Stop serving a model and free its memory, or remove an alias.

    New requests are refused at once. Running ones finish before the memory is freed. With tokens,
    only operators may do this.
    """
    with connect(ctx) as client:
        client.unload_model(name)
    if wants_json(ctx):
        print_json({"unloaded": name})
    else:
        click.echo(f"{name} is unloaded")


class _TargetsType(click.ParamType[tuple[str, dict[str, float]]]):
    """An alias and its models, ``NAME=MODEL[:PERCENT][,...]``."""

    name = "alias"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, dict[str, float]]:
        """Parses a value into the alias and the shares of its models."""
        name, _, rest = value.partition("=")
        shares = {}
        for part in rest.split(","):
            model, _, percent = part.partition(":")
            try:
                shares[model] = float(percent or 100) / 100
            except ValueError:
                self.fail(f"must be NAME=MODEL or NAME=MODEL:90,MODEL:10, got {value!r}")
        return name, shares


@click.command("alias", cls=Command)
@click.argument("alias", metavar="NAME=MODEL[:PERCENT][,...]", type=_TargetsType())
@click.pass_context
def set_alias(ctx: click.Context, alias: tuple[str, dict[str, float]]) -> None:
    """Give models a further name, or share its requests between several of them.

    An alias that exists gets the new models. `shaperouter unload NAME` removes it. With tokens,
    only operators may do this.

    \b
    shaperouter alias chat=gpt2
    shaperouter alias chat=gpt2:90,gpt2-int8:10
    """  # noqa: D301 (Click's mark of lines that are not filled)
    name, targets = alias
    with connect(ctx) as client:
        client.set_alias(name, targets)
    if wants_json(ctx):
        print_json({"alias": name, "targets": targets})
    else:
        click.echo(f"{name}: {percentages(targets)}")
