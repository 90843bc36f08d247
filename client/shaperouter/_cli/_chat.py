"""``shaperouter chat``."""

import sys
from typing import Any

import click

from shaperouter._cli._command import Command, connect, report, wants_json
from shaperouter._cli._generation_options import generation_options, require_json
from shaperouter._cli._output import output_for
from shaperouter._cli._stdin import read_line
from shaperouter._cli._waiting import WaitingLine
from shaperouter._client import Client
from shaperouter._errors import ShaperouterError

_EXIT = "/exit"


@click.command("chat", cls=Command)
@click.option(
    "--model",
    default="",
    metavar="NAME",
    help="Model to use. [default: the only one that generates from text]",
)
@click.option(
    "--system", metavar="TEXT", help="System message that begins the conversation. [default: none]"
)
@generation_options
@click.pass_context
def chat(ctx: click.Context, /, *, model: str, system: str | None, **options: Any) -> None:
    """Hold a conversation with a model whose checkpoint has a chat template.

    Each line of stdin is a message. The answer is printed as it is generated and added to the
    conversation. "/exit" or Ctrl-D ends it. A message that fails is dropped, and you can send
    another one. The exit code is 1 if all messages failed.

    With --json, each event is one object on a line: stall, delta, completion.
    """
    if options["echo"]:
        raise click.UsageError("--echo would repeat the conversation before each answer", ctx)
    require_json(ctx, options)
    messages = [] if system is None else [{"role": "system", "content": system}]
    answered = failed = 0
    with connect(ctx) as client:
        while True:
            try:
                line = _read_line()
                if line is None or line.strip() == _EXIT:
                    break
                if not line.strip():
                    continue
                asked = [*messages, {"role": "user", "content": line}]
                answer = _answer(ctx, client, asked, model=model, **options)
            except ShaperouterError as error:
                report(ctx, error)
                failed += 1
            else:
                messages = [*asked, {"role": "assistant", "content": answer}]
                answered += 1
    if failed and not answered:
        ctx.exit(1)


def _answer(
    ctx: click.Context, client: Client, messages: list[dict[str, str]], **arguments: Any
) -> str:
    """Prints the answer as it is generated, and returns it."""
    output = output_for(as_json=wants_json(ctx), stream=True, explain=False, prompt=lambda: "")
    with WaitingLine(enabled=not wants_json(ctx)) as waiting:
        waiting.show(f"waiting for {client.address}")
        call = client.stream_chat(messages, on_stall=output.stall, **arguments)
        try:
            with call:
                for delta in call:
                    waiting.hide()
                    output.delta(delta)
        except (ShaperouterError, KeyboardInterrupt):
            waiting.hide()
            output.interrupt()
            raise
    output.end(call.result)
    return call.result.text


def _read_line() -> str | None:
    """The next message; None at the end. A terminal gets a prompt."""
    if sys.stdin.isatty() and sys.stdout.isatty():
        click.echo("> ", nl=False)
    return read_line("messages")
