"""``shaperouter load`` and ``shaperouter unload``."""

import click

from shaperouter._cli._command import Command, connect, wants_json
from shaperouter._cli._json import print_json
from shaperouter._cli._waiting import WaitingLine


@click.command("load", cls=Command)
@click.argument("name", metavar="NAME[=LOCATION]")
@click.pass_context
def load(ctx: click.Context, name: str) -> None:
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
    """  # noqa: D301 (Click's mark of lines that are not filled)
    model, _, location = name.partition("=")
    with connect(ctx) as client, WaitingLine(enabled=not wants_json(ctx)) as waiting:
        waiting.show(f"loading {model}")
        loaded = client.load_model(model, location)
    if wants_json(ctx):
        print_json({"model": loaded})
    else:
        click.echo(f"{loaded.name} serves revision {loaded.revision[:12]}")


@click.command("unload", cls=Command)
@click.argument("name")
@click.pass_context
def unload(ctx: click.Context, name: str) -> None:
    """Stop serving a model and free its memory.

    New requests are refused at once. Running ones finish before the memory is freed. With tokens,
    only operators may do this.
    """
    with connect(ctx) as client:
        client.unload_model(name)
    if wants_json(ctx):
        print_json({"unloaded": name})
    else:
        click.echo(f"{name} is unloaded")
