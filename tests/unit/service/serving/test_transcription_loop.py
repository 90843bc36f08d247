"""The transcription loop transcribes recordings to their ends, with a scripted decoder."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from harness.transcripts import TOKENS, decode, transcript
from shaperouter.v1 import transcription_pb2
from shaperouter_service.generation.transcription import Language, Progress
from shaperouter_service.serving.transcription.loop import transcribe
from shaperouter_service.serving.transcription.options import Transcribing, resolve_transcription
from shaperouter_service.speech.audio.recording import Recording
from shaperouter_service.speech.audio.spectrum import HEADER, HOP_SAMPLES
from shaperouter_service.speech.transcription import (
    Alignment,
    Attempt,
    Decoded,
    Segment,
    TranscriptSettings,
    TranscriptTokens,
)
from shaperouter_service.speech.transcription.words import TimedWord
from shaperouter_service.wire.transcription import transcription_options_from_message

WINDOW = 100
TEXT = "The quick brown fox jumps over the lazy dog."


class WindowDecoder:
    """Decodes each window as "ab" in its first 0.6 s, and more text after it."""

    def __init__(self) -> None:
        self.attempts: list[Attempt] = []
        self.windows: list[np.ndarray] = []
        self.languages = 0

    async def language(self, window: np.ndarray) -> tuple[str, float]:
        self.windows.append(window)
        self.languages += 1
        return "de", 0.75

    async def decode(self, window: np.ndarray, attempt: Attempt) -> Sequence[Decoded]:
        self.windows.append(window)
        self.attempts.append(attempt)
        return [
            Decoded(
                token_ids=transcript(0.0, " ab", 0.6, 0.6, "c"),
                sum_logprob=-1.0,
                text=TEXT,
                no_speech_probability=0.0,
            )
        ]

    async def align(self, window: np.ndarray, alignment: Alignment) -> Sequence[TimedWord]:
        self.windows.append(window)
        ((text, token_ids),) = alignment.words
        return [TimedWord(text=text, token_ids=token_ids, start=0.1, end=0.5, probability=0.9)]


def samples(frames: int) -> np.ndarray:
    return (0.1 * np.random.default_rng(0).standard_normal(frames * HOP_SAMPLES)).astype(np.float32)


def run(
    pieces: Sequence[int],
    *,
    tokens: TranscriptTokens = TOKENS,
    step_seconds: float | None = None,
    **options: Any,
) -> tuple[WindowDecoder, list[object]]:
    """Transcribes a recording that arrives in pieces of the given numbers of frames."""
    decoder = WindowDecoder()
    resolved = resolve_transcription(
        transcription_options_from_message(transcription_pb2.TranscriptionOptions(**options)),
        tokens,
        names={},
        initial_prompt=[],
        max_beams=1,
        step_seconds=step_seconds,
    )
    transcribing = Transcribing(
        request_id="r",
        client="c",
        model="m",
        settings=TranscriptSettings(
            tokens=tokens,
            suppressed=(),
            begin_suppressed=(),
            last_initial_timestamp=0,
            mel_bands=80,
            window_frames=WINDOW,
        ),
        max_length=20,
        resolved=resolved,
        decode=decode,
        deadline=None,
    )
    recording = Recording(bands=80, window_frames=WINDOW)
    left = list(pieces)

    def receive() -> None:
        recording.append(samples(left.pop(0)))
        if not left:
            recording.finish()

    async def take(*, until: int, wait: bool) -> None:
        if wait:
            receive()

    async def collect(receive: Callable[[], None]) -> list[object]:
        receive()
        return [event async for event in transcribe(recording, transcribing, decoder, take)]

    return decoder, asyncio.run(collect(receive))


def starts(events: list[object]) -> list[float]:
    return [event.start for event in events if isinstance(event, Segment)]


def test_a_recording_is_transcribed_window_by_window() -> None:
    decoder, events = run([170], language="en")
    assert [(one.first_frame, one.frames) for one in decoder.attempts] == [
        (0, 100),
        (60, 100),
        (120, 50),
    ]
    assert starts(events) == [0.0, 0.6, 1.2]


def test_a_given_language_is_not_detected() -> None:
    decoder, events = run([100], language="en")
    assert events[0] == Language(code="en", probability=1.0)
    assert decoder.languages == 0


def test_an_english_only_model_reports_english() -> None:
    decoder, events = run([100], tokens=replace(TOKENS, languages={}, tasks={}))
    assert events[0] == Language(code="en", probability=1.0)
    assert decoder.attempts[0].prompt == [TOKENS.start]


def test_the_language_is_detected_in_the_first_window() -> None:
    decoder, events = run([100])
    assert events[0] == Language(code="de", probability=0.75)
    assert decoder.attempts[0].prompt[1] == TOKENS.languages["de"]


@pytest.mark.parametrize("language", ["en", None])
def test_a_stream_has_the_same_segments_as_the_whole_recording(language: str | None) -> None:
    options = {} if language is None else {"language": language}
    decoder, events = run([30, 30, 30, 30, 30], **options)
    whole, same = run([150], **options)
    assert [one.first_frame for one in decoder.attempts] == [
        one.first_frame for one in whole.attempts
    ]
    assert starts(events) == starts(same)


def test_a_stream_can_be_transcribed_in_steps() -> None:
    decoder, _ = run([60, 60, 60], language="en", step_seconds=0.5)
    assert decoder.attempts[0].is_partial


def test_progress_ends_with_the_recording() -> None:
    _, events = run([170], language="en")
    progress = [event for event in events if isinstance(event, Progress)]
    assert [one.transcribed for one in progress] == [0.6, 1.2, 1.7]
    assert {one.received for one in progress} == {1.7}


def test_words_are_timed_in_the_window_that_was_decoded() -> None:
    decoder, events = run([100], language="en", word_timestamps=True)
    first = next(event for event in events if isinstance(event, Segment))
    assert [(word.text, word.start, word.end) for word in first.words] == [(" ab", 0.1, 0.5)]
    np.testing.assert_array_equal(decoder.windows[0], decoder.windows[1])


def test_a_window_says_how_many_of_its_frames_belong_to_the_recording() -> None:
    short, _ = run([70], language="en")
    long, _ = run([170], language="en")
    assert [window[HEADER - 1] for window in short.windows][:1] == [70]
    assert [window[HEADER - 1] for window in long.windows] == [100, 100, 50]
