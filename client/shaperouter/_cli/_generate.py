"""``shaperouter generate``."""

from typing import Any

import click

from shaperouter._cli._command import Command, connect, wants_json
from shaperouter._cli._generation_options import generation_options, require_json
from shaperouter._cli._output import Output, output_for
from shaperouter._cli._stdin import read_stdin
from shaperouter._cli._waiting import WaitingLine
from shaperouter._client import Client
from shaperouter._errors import InvalidArgumentError, ShaperouterError
from shaperouter._model import ModelKind
from shaperouter._signature import Signature

_STALL_REMARK = "later requests won't wait"
# The kinds of models among which the service chooses if the request names none.
_GENERATING = (ModelKind.DECODER, ModelKind.ENCODER_DECODER)


@click.command(
    "generate",
    cls=Command,
    field_names={"text": "PROMPT", "token_ids": "PROMPT", "token_ids.ids": "PROMPT"},
)
@click.argument("prompt")
@click.option(
    "--model",
    default="",
    metavar="NAME",
    help="Model to use. [default: the only one that generates from text]",
)
@click.option(
    "--token-ids",
    "as_token_ids",
    is_flag=True,
    help="Read PROMPT as token ids, separated by spaces or commas. [default: text]",
)
@click.option(
    "--decoder-text",
    metavar="TEXT",
    help="For a model with an encoder, which reads PROMPT: text that the new text continues. "
    "[default: none]",
)
@click.option(
    "--stream",
    is_flag=True,
    help="Print the text as it is generated. With several sequences, stream the first and "
    "print the others at the end. [default: print complete texts]",
)
@click.option(
    "--explain",
    is_flag=True,
    help="Print on stderr how the request was routed: the options and the expected time of "
    "each. JSON has them as routes. [default: no]",
)
@generation_options
@click.pass_context
def generate(
    ctx: click.Context,
    /,
    *,
    prompt: str,
    model: str,
    as_token_ids: bool,
    decoder_text: str | None,
    stream: bool,
    explain: bool,
    **options: Any,
) -> None:
    """Continue PROMPT with a model and print the new text.

    PROMPT "-" reads the prompt from stdin, without the last line break. On a terminal, the prompt
    is shown before the text, and stderr shows what the request waits for and how long it took.
    Several sequences are numbered, with the scores of beam search.

    --explain prints a table for each time that a run of the request was sent to a worker. It has
    the expected seconds of every option. The chosen option comes first and is marked ">".

    With --json, the whole result is printed as one object. With --json and --stream, each event is
    one object on a line: stall, delta, completion.
    """
    require_json(ctx, options)
    text = prompt
    if prompt == "-":
        text = read_stdin("text").removesuffix("\n").removesuffix("\r")
    with connect(ctx) as client, WaitingLine(enabled=not wants_json(ctx)) as waiting:
        output = output_for(
            as_json=wants_json(ctx),
            stream=stream,
            explain=explain,
            prompt=lambda: _visible_prompt(
                client,
                model,
                text,
                decoder_text,
                as_token_ids=as_token_ids,
                echo=options["echo"],
            ),
        )
        waiting.show(f"waiting for {client.address}")
        call = client.stream(
            _parse_token_ids(text) if as_token_ids else text,
            decoder_text=decoder_text,
            model=model,
            explain=explain,
            on_stall=lambda signature: _stall(signature, output, waiting),
            **options,
        )
        try:
            with call:
                for delta in call:
                    if stream:
                        waiting.hide()
                    else:
                        waiting.show("generating")
                    output.delta(delta)
        except (ShaperouterError, KeyboardInterrupt):
            waiting.hide()
            output.interrupt()
            raise
        waiting.hide()
        output.end(call.result)


def _visible_prompt(
    client: Client,
    model: str,
    text: str,
    decoder_text: str | None,
    *,
    as_token_ids: bool,
    echo: bool | None,
) -> str:
    """The text to show before the new text, which continues it; empty if there is none."""
    if echo:
        return ""
    if decoder_text is not None:
        return decoder_text
    if as_token_ids or _kind(client, model) is ModelKind.ENCODER_DECODER:
        # The text does not continue a source.
        return ""
    return text


def _kind(client: Client, model: str) -> ModelKind:
    """The kind of the named model, or of the only one that generates from text."""
    if model:
        return client.model(model).kind
    kinds = (each.kind for each in client.models() if each.kind in _GENERATING)
    return next(kinds, ModelKind.UNKNOWN)


def _stall(signature: Signature, output: Output, waiting: WaitingLine) -> None:
    waiting.show(
        f"compiling {signature.shape}", remark=_STALL_REMARK, below_text=output.cursor_is_in_text
    )
    output.stall(signature)


def _parse_token_ids(text: str) -> list[int]:
    ids = []
    for word in text.replace(",", " ").split():
        try:
            ids.append(int(word))
        except ValueError:
            raise InvalidArgumentError.of(
                f"token_ids.ids[{len(ids)}]", f"must be an integer, got {word!r}"
            ) from None
    return ids
