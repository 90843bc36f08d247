"""The transcription loop: does what the `Transcriber` asks for, with a model."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from shaperouter_service.generation.transcription import Language, Progress
from shaperouter_service.serving.transcription.options import Transcribing
from shaperouter_service.speech.audio.recording import Recording
from shaperouter_service.speech.transcription import (
    Alignment,
    Attempt,
    Decoded,
    Finished,
    NeedAudio,
    Segment,
    Transcriber,
)
from shaperouter_service.speech.transcription.languages import ENGLISH
from shaperouter_service.speech.transcription.segments import FRAMES_PER_SECOND
from shaperouter_service.speech.transcription.words import TimedWord


class WindowDecoder(Protocol):
    """A model that transcribes windows of one recording, on any worker.

    A window is the result of `audio.spectrum.window_source`.
    """

    async def language(self, window: np.ndarray) -> tuple[str, float]:
        """The code of the likeliest language, and its probability."""

    async def decode(self, window: np.ndarray, attempt: Attempt) -> Sequence[Decoded]:
        """Decodes a window: once at temperature 0, otherwise as often as requested."""

    async def align(self, window: np.ndarray, alignment: Alignment) -> Sequence[TimedWord]:
        """Finds the times of a transcript's words, in seconds of the window."""


class Take(Protocol):
    """A function that adds to a recording."""

    async def __call__(self, *, until: int, wait: bool) -> None:
        """Adds what has arrived.

        Args:
            until: Number of frames needed; it need not add more than that.
            wait: Whether to wait until something has arrived or the recording is complete.
        """


async def transcribe(
    recording: Recording, transcribing: Transcribing, decoder: WindowDecoder, take: Take
) -> AsyncGenerator[Language | Segment | Progress, None]:
    """Transcribes a recording to its end.

    Args:
        recording: The recording, which may already have content.
        transcribing: How to transcribe, with which model.
        decoder: Transcribes windows of this recording.
        take: Adds to the recording.

    Yields:
        First the language, then segments as they become final, and the progress after each window.
    """
    settings, resolved = transcribing.settings, transcribing.resolved
    options, window_frames = resolved.options, settings.window_frames
    code, probability = options.language or ENGLISH, 1.0
    if resolved.detects_language:
        while not recording.is_complete and recording.frames < window_frames:
            await take(until=window_frames, wait=True)
        code, probability = await decoder.language(await _first_window(recording, window_frames))
        options = replace(options, language=code)
    yield Language(code=code, probability=probability)

    transcriber = Transcriber(
        settings.tokens,
        options,
        decode=transcribing.decode,
        window_frames=window_frames,
        max_length=transcribing.max_length,
    )
    while True:
        needed = transcriber.next_frame + window_frames
        await take(until=needed, wait=False)
        transcriber.feed(recording.frames, is_complete=recording.is_complete)
        asked = transcriber.next()
        match asked:
            case Finished():
                return
            case NeedAudio():
                await take(until=needed, wait=True)
                continue
            case Attempt():
                window = await _window(recording, asked)
                segments = transcriber.accept(await decoder.decode(window, asked))
            case Alignment():
                window = await _window(recording, asked)
                segments = transcriber.align(await decoder.align(window, asked))
        for segment in segments:
            yield segment
        recording.drop_before(transcriber.next_frame)
        yield Progress(
            transcribed=min(transcriber.next_frame / FRAMES_PER_SECOND, recording.seconds),
            received=recording.seconds,
        )


async def _window(recording: Recording, asked: Attempt | Alignment) -> np.ndarray:
    """Cuts out a window in a thread, because measuring a long recording takes a while."""
    return await asyncio.to_thread(recording.window, asked.first_frame, asked.frames)


async def _first_window(recording: Recording, window_frames: int) -> np.ndarray:
    frames = min(recording.frames, window_frames)
    return await asyncio.to_thread(recording.window, 0, frames)
