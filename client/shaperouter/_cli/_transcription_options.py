"""Options of ``shaperouter transcribe``: the recording's format and how to transcribe it."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from shaperouter._cli._command import GroupedOption
from shaperouter._transcription import AudioFormat, TranscriptionTask

F = TypeVar("F", bound=Callable[..., Any])

_RECORDING, _TRANSCRIPT, _DECODING = "Recording", "Transcript", "Decoding and retries"


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
        help="Format of FILE. [default: detected from the file's content]",
    ),
    _option(
        _RECORDING,
        "--sample-rate",
        type=int,
        metavar="HZ",
        help="For raw samples: samples per second, from 4000 to 192000.",
    ),
    _option(
        _RECORDING,
        "--channels",
        type=int,
        metavar="N",
        help="For raw samples: number of channels, at most 8. [default: 1]",
    ),
    _option(
        _RECORDING,
        "--step-seconds",
        type=float,
        metavar="SECONDS",
        help="For raw samples that are still arriving: transcribe each time this many seconds "
        "have arrived, from 0.5 to 30. [default: 30, a whole window]",
    ),
    _option(
        _TRANSCRIPT,
        "--language",
        metavar="LANGUAGE",
        help="Spoken language: its code or English name. [default: detected]",
    ),
    _option(
        _TRANSCRIPT,
        "--task",
        type=click.Choice([each.value for each in TranscriptionTask]),
        help="Language of the transcript: transcribe keeps the spoken language, translate gives "
        "English. [default: transcribe]",
    ),
    _option(
        _TRANSCRIPT,
        "--word-timestamps",
        is_flag=True,
        help="Say when each word begins and ends. [default: no]",
    ),
    _option(
        _TRANSCRIPT,
        "--timestamps/--no-timestamps",
        "timestamps",
        help="Let the model say when segments begin and end, or make each window one segment. "
        "[default: timestamps]",
    ),
    _option(
        _TRANSCRIPT,
        "--initial-prompt",
        metavar="TEXT",
        help="Text before the recording, e.g. names and spellings to expect. [default: none]",
    ),
    _option(
        _TRANSCRIPT,
        "--condition-on-previous-text/--no-condition-on-previous-text",
        "condition_on_previous_text",
        help="Let the model read the transcript of the previous windows. [default: yes]",
    ),
    _option(
        _DECODING,
        "--temperature",
        "temperatures",
        type=float,
        multiple=True,
        callback=_several,
        metavar="T",
        help="Temperature to decode at. If repeated, a transcript that is rejected by the "
        "thresholds below is decoded again at the next one. [default: 0, 0.2, 0.4, 0.6, 0.8, "
        "1]",
    ),
    _option(
        _DECODING,
        "--num-beams",
        type=int,
        metavar="N",
        help="Number of hypotheses of beam search at temperature 0; 1 means no beam search. "
        "[default: 1]",
    ),
    _option(
        _DECODING,
        "--best-of",
        type=int,
        metavar="N",
        help="Number of transcripts to sample at a temperature above 0, from 1 to 16; the most "
        "likely one is used. [default: 5]",
    ),
    _option(
        _DECODING,
        "--compression-ratio-threshold",
        type=float,
        metavar="R",
        help="Reject a transcript whose compression ratio is above R: it repeats itself. "
        "[default: 2.4]",
    ),
    _option(
        _DECODING,
        "--logprob-threshold",
        type=float,
        metavar="L",
        help="Reject a transcript whose mean log-probability per token is below L. [default: -1]",
    ),
    _option(
        _DECODING,
        "--no-speech-threshold",
        type=float,
        metavar="P",
        help="Treat a window as silence if the probability of no speech is above P and the "
        "transcript is improbable. [default: 0.6]",
    ),
    _option(
        _DECODING,
        "--seed",
        type=int,
        metavar="S",
        help="Random seed, from 0 to 2^63 - 1. [default: chosen by the service]",
    ),
]


def transcription_options(command: F) -> F:
    """Adds the options to a command, in groups."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
