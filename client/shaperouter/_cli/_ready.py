"""``shaperouter ready``."""

import click

from shaperouter._cli._command import Command, connect, given_timeout, wants_json
from shaperouter._cli._json import print_json
from shaperouter._cli._waiting import WaitingLine
from shaperouter._client import Client
from shaperouter._endpoint import DEFAULT_TIMEOUT
from shaperouter._errors import DeadlineError


@click.command("ready", cls=Command)
@click.option("--model", default="", metavar="NAME", help="Check only this model. [default: all]")
@click.option(
    "--wait",
    is_flag=True,
    help="Wait until the service is ready, for --timeout at most. [default: check once]",
)
@click.pass_context
def ready(ctx: click.Context, model: str, wait: bool) -> None:
    """Check whether the service can serve at once: every model has a worker with its first graphs.

    Exit code 0 if it is ready, else 1 with the reason on stderr. With --wait, the service need not
    even be listening yet. In scripts:

    \b
    shaperouterd serve &
    shaperouter ready --wait --timeout 60 && shaperouter generate "TensorFlow is"
    """  # noqa: D301 (Click's mark of lines that are not filled)
    with connect(ctx) as client, WaitingLine(enabled=not wants_json(ctx)) as waiting:
        waiting.show(f"waiting for {client.address}")
        # `ready` would not tell the reason.
        reason = (
            _wait(client, model, waiting)
            if wait
            else client._unready_reason(model, given_timeout(ctx, default=DEFAULT_TIMEOUT))
        )
    if wants_json(ctx):
        print_json({"ready": not reason, "reason": reason or None})
    elif reason:
        click.echo(f"Error: {reason}", err=True)
    else:
        click.echo("ready")
    ctx.exit(1 if reason else 0)


def _wait(client: Client, model: str, waiting: WaitingLine) -> str:
    """Waits, and returns why the service is still not ready; empty if it is ready."""
    try:
        client.wait_until_ready(
            model,
            on_wait=lambda reason: waiting.show(f"waiting for {client.address}", remark=reason),
        )
    except DeadlineError as error:
        return str(error)
    return ""
