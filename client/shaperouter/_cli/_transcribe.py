"""``shaperouter transcribe``."""

import sys
from pathlib import Path
from typing import Any, BinaryIO

import click

from shaperouter._cli._command import Command, connect, wants_json
from shaperouter._cli._json import print_json
from shaperouter._cli._output import for_terminal
from shaperouter._cli._transcript_formats import HEADINGS, WRITERS, TranscriptFormat, as_words
from shaperouter._cli._transcription_options import transcription_options
from shaperouter._cli._waiting import WaitingLine
from shaperouter._errors import ShaperouterError
from shaperouter._signature import Signature
from shaperouter._transcription import Transcription, TranscriptionProgress

STDIN = "-"


@click.command(
    "transcribe",
    cls=Command,
    field_names={
        "audio.format": "--audio-format",
        "audio": "FILE",
        "audio.content": "FILE",
        "content": "FILE",
    },
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option(
    "--model",
    default="",
    metavar="NAME",
    help="Model to use. [default: the only one that transcribes]",
)
@click.option(
    "--format",
    "output_format",
    type=click.Choice([each.value for each in TranscriptFormat]),
    default=TranscriptFormat.TEXT.value,
    help="Output: text with a line for each segment, the whole result as JSON, or subtitles. "
    "[default: text]",
)
@transcription_options
@click.pass_context
def transcribe(
    ctx: click.Context, /, *, file: str, model: str, output_format: str, **options: Any
) -> None:
    """Transcribe FILE, a recording.

    FILE is a WAV, FLAC, OGG or MP3 file, or with --audio-format raw samples; "-" reads stdin. Raw
    samples are transcribed as they arrive, e.g. from a microphone. A file is transcribed once it
    has been sent completely.

    Segments are printed as they become final. With --word-timestamps, text output has a line for
    each word, with the seconds at which it begins and ends, and WebVTT has the times of words in
    its cues. SubRip (srt) cannot show them.
    """
    output = TranscriptFormat.JSON if wants_json(ctx) else TranscriptFormat(output_format)
    write = WRITERS.get(output)
    if options["word_timestamps"]:
        if output is TranscriptFormat.SRT:
            raise click.UsageError(
                "--word-timestamps cannot be used with --format srt, which has no times of words; "
                "use vtt, json or text",
                ctx,
            )
        if output is TranscriptFormat.TEXT:
            write = as_words
    with (
        connect(ctx) as client,
        WaitingLine(enabled=output is not TranscriptFormat.JSON) as waiting,
    ):
        waiting.show(f"waiting for {client.address}")
        stream = client.transcribe_stream(
            _stdin() if file == STDIN else Path(file),
            model=model,
            on_stall=lambda signature: _stall(signature, waiting),
            on_progress=lambda progress: _progress(progress, waiting),
            **options,
        )
        try:
            with stream:
                if output in HEADINGS:
                    waiting.hide()
                    click.echo(HEADINGS[output])
                for number, segment in enumerate(stream, 1):
                    if write is not None:
                        waiting.hide()
                        text = write(number, segment)
                        click.echo(for_terminal(text) if sys.stdout.isatty() else text)
        except (ShaperouterError, KeyboardInterrupt):
            waiting.hide()
            raise
        waiting.hide()
    if write is None:
        print_json(stream.result)
    elif sys.stderr.isatty():
        click.secho(summary(stream.result), err=True, dim=True)


def summary(transcription: Transcription) -> str:
    """Figures of the request in one line."""
    audio, total = transcription.audio_seconds, transcription.total_seconds
    parts = [f"{audio:.1f} s of {transcription.language.code}", f"{total:.2f} s"]
    if audio > 0:
        parts.append(f"{total / audio:.3f} of real time")
    return " · ".join([*parts, f"seed {transcription.seed}"])


def _stdin() -> BinaryIO:
    """Stdin without its buffer.

    gRPC's thread may still read it when the command ends. In a buffered read, it would hold a lock
    that the interpreter needs then, which aborts the process.
    """
    unbuffered: BinaryIO = getattr(sys.stdin.buffer, "raw", sys.stdin.buffer)
    return unbuffered


def _stall(signature: Signature, waiting: WaitingLine) -> None:
    waiting.show(f"compiling {signature.shape}")


def _progress(progress: TranscriptionProgress, waiting: WaitingLine) -> None:
    done, received = progress.transcribed_seconds, progress.received_seconds
    waiting.show("transcribing", remark=f"{done:.0f} of {received:.0f} s")
