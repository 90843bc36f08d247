"""The options of ``shaperouter transcribe`` that say what is there and how to transcribe it."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from shaperouter._cli._command import GroupedOption
from shaperouter._transcription import AudioFormat, TranscriptionTask

F = TypeVar("F", bound=Callable[..., Any])

_RECORDING, _TRANSCRIPT, _TRUST = "Recording", "Transcript", "What is trusted"


def _option(group: str, *names: str, **settings: Any) -> Callable[[F], F]:
    return click.option(*names, cls=GroupedOption, group=group, default=None, **settings)


def _several(
    ctx: click.Context, parameter: click.Parameter, values: tuple[Any, ...]
) -> tuple[Any, ...] | None:
    del ctx, parameter
    return values or None


_OPTIONS = [
    _option(
        _RECORDING,
        "--audio-format",
        type=click.Choice([each.value for each in AudioFormat]),
        help="What FILE is. [default: one of the files, as its content says]",
    ),
    _option(
        _RECORDING,
        "--sample-rate",
        type=int,
        metavar="HZ",
        help="Of bare samples: how many a second; from 4000 to 192000.",
    ),
    _option(
        _RECORDING,
        "--channels",
        type=int,
        metavar="N",
        help="Of bare samples: how many at a time; at most 8. [default: 1]",
    ),
    _option(
        _RECORDING,
        "--step-seconds",
        type=float,
        metavar="SECONDS",
        help="Of bare samples that are still coming in: transcribe each time that so many seconds "
        "came, from 0.5 to 30. [default: 30, whole windows]",
    ),
    _option(
        _TRANSCRIPT,
        "--language",
        metavar="LANGUAGE",
        help="Language that is spoken: its code or English name. [default: heard]",
    ),
    _option(
        _TRANSCRIPT,
        "--task",
        type=click.Choice([each.value for each in TranscriptionTask]),
        help="What was said, or that in English. [default: transcribe]",
    ),
    _option(
        _TRANSCRIPT,
        "--word-timestamps",
        is_flag=True,
        help="Tell when each word was said. [default: no]",
    ),
    _option(
        _TRANSCRIPT,
        "--timestamps/--no-timestamps",
        "timestamps",
        help="Let the model say when segments begin and end, or take each window for one. "
        "[default: timestamps]",
    ),
    _option(
        _TRANSCRIPT,
        "--initial-prompt",
        metavar="TEXT",
        help="Text that comes before: names and spellings to expect. [default: none]",
    ),
    _option(
        _TRANSCRIPT,
        "--condition-on-previous-text/--no-condition-on-previous-text",
        "condition_on_previous_text",
        help="Let the model read what it heard in the windows before. [default: yes]",
    ),
    _option(
        _TRUST,
        "--temperature",
        "temperatures",
        type=float,
        multiple=True,
        callback=_several,
        metavar="T",
        help="Temperature to decode at; repeated, the next one is for what is not trusted. "
        "[default: 0, 0.2, 0.4, 0.6, 0.8, 1]",
    ),
    _option(
        _TRUST,
        "--num-beams",
        type=int,
        metavar="N",
        help="Hypotheses of beam search at temperature 0; 1 is none. [default: 1]",
    ),
    _option(
        _TRUST,
        "--best-of",
        type=int,
        metavar="N",
        help="Transcripts at a temperature above 0, of which the likeliest counts; from 1 to 16. "
        "[default: 5]",
    ),
    _option(
        _TRUST,
        "--compression-ratio-threshold",
        type=float,
        metavar="R",
        help="Above it, a transcript repeats itself. [default: 2.4]",
    ),
    _option(
        _TRUST,
        "--logprob-threshold",
        type=float,
        metavar="L",
        help="Below it, a transcript is improbable. [default: -1]",
    ),
    _option(
        _TRUST,
        "--no-speech-threshold",
        type=float,
        metavar="P",
        help="Above it, an improbable transcript is silence. [default: 0.6]",
    ),
    _option(
        _TRUST,
        "--seed",
        type=int,
        metavar="S",
        help="Seed of the randomness, from 0 to 2^63 - 1. [default: chosen by the service]",
    ),
]


def transcription_options(command: F) -> F:
    """Adds the options to a command, in groups."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
