"""From a recording to segments: what the rules of transcription ask for, done by a model."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from shaperouter_service.api.transcription_options import ResolvedTranscription
from shaperouter_service.audio.recording import Recording
from shaperouter_service.audio.spectrum import HOP_SAMPLES, SAMPLE_RATE
from shaperouter_service.transcription import (
    Alignment,
    Attempt,
    Decoded,
    Finished,
    MoreAudio,
    Segment,
    Transcriber,
    TranscriptTokens,
)
from shaperouter_service.transcription.languages import ENGLISH
from shaperouter_service.transcription.words import TimedWord

FRAMES_PER_SECOND = SAMPLE_RATE / HOP_SAMPLES


class Hearer(Protocol):
    """A model that hears windows of one recording, on whatever worker there is.

    A window is what `audio.spectrum.source` makes.
    """

    async def language(self, window: np.ndarray) -> tuple[str, float]:
        """The code of the likeliest language, and its probability."""

    async def decode(self, window: np.ndarray, attempt: Attempt) -> Sequence[Decoded]:
        """Decodes a window: once at temperature 0, else as often as was asked for."""

    async def align(self, window: np.ndarray, alignment: Alignment) -> Sequence[TimedWord]:
        """Tells when the words of a transcript were said, in seconds of the window."""


class Take(Protocol):
    """Adds to a recording."""

    async def __call__(self, *, wait: bool) -> None:
        """Adds what has come of it; told to wait, waits until something has, or it is complete."""


@dataclass(frozen=True, kw_only=True)
class Language:
    """What is spoken.

    Attributes:
        code: Of the language.
        probability: 1 where it was not heard, but given.
    """

    code: str
    probability: float


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a transcript is.

    Attributes:
        transcribed: Seconds of the recording that are.
        received: Seconds of it that there are.
    """

    transcribed: float
    received: float


async def listen(
    recording: Recording,
    resolved: ResolvedTranscription,
    hearer: Hearer,
    *,
    tokens: TranscriptTokens,
    decode: Callable[[Sequence[int]], str],
    window_frames: int,
    max_length: int,
    take: Take,
) -> AsyncGenerator[Language | Segment | Progress, None]:
    """Transcribes a recording to its end.

    Args:
        recording: Of which some may be there already.
        resolved: How to transcribe.
        hearer: Of this recording.
        tokens: Of the model.
        decode: Turns tokens of text into text.
        window_frames: Of a whole window.
        max_length: Most tokens of a window, prompt and all.
        take: Adds to the recording.

    Yields:
        The language first; segments as they become final; after each window, how far it is.
    """
    options = resolved.options
    code, probability = options.language or ENGLISH, 1.0
    if resolved.hears_language:
        while not recording.is_complete and recording.frames < window_frames:
            await take(wait=True)
        code, probability = await hearer.language(await _first_window(recording, window_frames))
        options = replace(options, language=code)
    yield Language(code=code, probability=probability)

    transcriber = Transcriber(
        tokens, options, decode=decode, window_frames=window_frames, max_length=max_length
    )
    while True:
        await take(wait=False)
        transcriber.hear(recording.frames, is_complete=recording.is_complete)
        asked = transcriber.next()
        match asked:
            case Finished():
                return
            case MoreAudio():
                await take(wait=True)
                continue
            case Attempt():
                window = await _window(recording, asked)
                segments = transcriber.judge(await hearer.decode(window, asked))
            case Alignment():
                window = await _window(recording, asked)
                segments = transcriber.align(await hearer.align(window, asked))
        for segment in segments:
            yield segment
        recording.forget(transcriber.next_frame)
        yield Progress(
            transcribed=min(transcriber.next_frame / FRAMES_PER_SECOND, recording.seconds),
            received=recording.seconds,
        )


async def _window(recording: Recording, asked: Attempt | Alignment) -> np.ndarray:
    """Cut out in a thread: how loud a long recording is takes a while to tell."""
    return await asyncio.to_thread(recording.window, asked.first_frame, asked.frames)


async def _first_window(recording: Recording, window_frames: int) -> np.ndarray:
    frames = min(recording.frames, window_frames)
    return await asyncio.to_thread(recording.window, 0, frames)
