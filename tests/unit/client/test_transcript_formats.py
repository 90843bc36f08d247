"""Transcripts are printed as text and as subtitles that players read."""

from __future__ import annotations

import pytest

from shaperouter._cli._transcript_formats import HEADINGS, WRITERS, TranscriptFormat
from shaperouter._transcription import (
    DetectedLanguage,
    TranscribedSegment,
    Transcription,
)


def segment(text: str, start: float = 1.5, end: float = 2.0) -> TranscribedSegment:
    return TranscribedSegment(start_seconds=start, end_seconds=end, text=text)


@pytest.mark.parametrize(
    ("form", "printed"),
    [
        (TranscriptFormat.TEXT, "Hello there."),
        (TranscriptFormat.SRT, "7\n00:00:01,500 --> 00:00:02,000\nHello there.\n"),
        (TranscriptFormat.VTT, "00:00:01.500 --> 00:00:02.000\nHello there.\n"),
    ],
)
def test_a_segment(form: TranscriptFormat, printed: str) -> None:
    assert WRITERS[form](7, segment(" Hello there.")) == printed


@pytest.mark.parametrize(
    ("seconds", "printed"),
    [
        (0.0, "00:00:00,000"),
        (59.9996, "00:01:00,000"),
        (3599.5, "00:59:59,500"),
        (3600.0, "01:00:00,000"),
        (360_000.25, "100:00:00,250"),
    ],
)
def test_times_carry_over(seconds: float, printed: str) -> None:
    times = WRITERS[TranscriptFormat.SRT](1, segment("a", start=seconds, end=seconds))
    assert times.splitlines()[1] == f"{printed} --> {printed}"


@pytest.mark.parametrize("form", [TranscriptFormat.SRT, TranscriptFormat.VTT])
def test_text_cannot_be_taken_for_another_subtitle(form: TranscriptFormat) -> None:
    printed = WRITERS[form](1, segment("a --> b\n\n2\n c"))
    assert printed.endswith("\na -> b\n2\nc\n")


def test_text_cannot_be_taken_for_a_tag() -> None:
    printed = WRITERS[TranscriptFormat.VTT](1, segment("R&B <i>"))
    assert printed.endswith("\nR&amp;B &lt;i>\n")


def test_only_webvtt_has_a_heading() -> None:
    assert HEADINGS == {TranscriptFormat.VTT: "WEBVTT\n"}


def test_a_transcription_is_its_text() -> None:
    made = Transcription(
        segments=(segment(" Hello"), segment(" there.")),
        language=DetectedLanguage(code="en", probability=1.0),
        request_id="req-7",
        model="whisper",
        seed=1,
        audio_seconds=4.0,
        total_seconds=1.0,
        device_seconds=0.5,
        graphs=(),
    )
    assert str(made) == "Hello there."
    assert made.real_time_factor == 0.25
    assert repr(made) == "<Transcription 'Hello there.': 2 segments, 4.0 s, request req-7>"
