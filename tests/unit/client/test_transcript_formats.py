"""Transcripts as text and as subtitles."""

from __future__ import annotations

import dataclasses

import pytest

from shaperouter._cli._transcript_formats import HEADINGS, WRITERS, TranscriptFormat
from shaperouter._transcription import (
    DetectedLanguage,
    TranscribedSegment,
    TranscribedWord,
    Transcription,
)


def segment(text: str, start: float = 1.5, end: float = 2.0) -> TranscribedSegment:
    return TranscribedSegment(start_seconds=start, end_seconds=end, text=text)


def words_of(*words: tuple[str, float, float]) -> tuple[TranscribedWord, ...]:
    return tuple(
        TranscribedWord(text=text, start_seconds=start, end_seconds=end, probability=1.0)
        for text, start, end in words
    )


@pytest.mark.parametrize(
    ("form", "printed"),
    [
        (TranscriptFormat.TEXT, "Hello there."),
        (TranscriptFormat.SRT, "7\n00:00:01,500 --> 00:00:02,000\nHello there.\n"),
        (TranscriptFormat.VTT, "00:00:01.500 --> 00:00:02.000\nHello there.\n"),
    ],
)
def test_segment_in_each_format(form: TranscriptFormat, printed: str) -> None:
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
def test_milliseconds_carry_over_to_minutes_and_hours(seconds: float, printed: str) -> None:
    times = WRITERS[TranscriptFormat.SRT](1, segment("a", start=seconds, end=seconds))
    assert times.splitlines()[1] == f"{printed} --> {printed}"


@pytest.mark.parametrize("form", [TranscriptFormat.SRT, TranscriptFormat.VTT])
def test_text_cannot_end_a_subtitle(form: TranscriptFormat) -> None:
    printed = WRITERS[form](1, segment("a --> b\n\n2\n c"))
    assert printed.endswith("\na -> b\n2\nc\n")


def test_text_cannot_begin_a_tag() -> None:
    printed = WRITERS[TranscriptFormat.VTT](1, segment("R&B <i>"))
    assert printed.endswith("\nR&amp;B &lt;i>\n")


def test_webvtt_has_the_times_of_words() -> None:
    words = [(" Hello", 1.5, 1.7), (" <there>", 1.75, 1.9), (" R&B.", 1.9, 2.0)]
    made = dataclasses.replace(segment(" Hello <there> R&B."), words=words_of(*words))
    assert WRITERS[TranscriptFormat.VTT](1, made) == (
        "00:00:01.500 --> 00:00:02.000\nHello<00:00:01.750> &lt;there><00:00:01.900> R&amp;B.\n"
    )


def test_times_of_words_ascend_within_their_cue() -> None:
    words = [
        ("a", 1.6, 1.7),
        (" b", 1.6, 1.7),
        (" c", 1.55, 1.6),
        (" d", 2.0, 2.5),
        ("\ne", 1.9, 2),
    ]
    made = dataclasses.replace(segment("a b c d\ne"), words=words_of(*words))
    _, text = WRITERS[TranscriptFormat.VTT](1, made).splitlines()
    assert text == "<00:00:01.600>a b c d<00:00:01.900> e"


@pytest.mark.parametrize("form", [TranscriptFormat.TEXT, TranscriptFormat.SRT])
def test_only_webvtt_has_times_of_words_in_captions(form: TranscriptFormat) -> None:
    made = dataclasses.replace(segment("a b"), words=words_of(("a", 1.6, 1.7), (" b", 1.8, 1.9)))
    assert "a b" in WRITERS[form](1, made).splitlines()


def test_only_webvtt_has_a_heading() -> None:
    assert HEADINGS == {TranscriptFormat.VTT: "WEBVTT\n"}


def test_str_of_a_transcription_is_its_text() -> None:
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
