"""Recordings that are there as a whole are decoded in turns, twice, and never kept decoded."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

import numpy as np
import pytest
import soundfile

from harness.waiting import TIMEOUT
from shaperouter_service.errors import InvalidRequestError, RecordingMemoryError
from shaperouter_service.serving.fair_memory import FairMemory, Share
from shaperouter_service.serving.transcription.whole_recordings import ClientDecoder, WholeRecording
from shaperouter_service.speech.audio.declared import DeclaredAudio, decode_audio
from shaperouter_service.speech.audio.recording import Recording
from shaperouter_service.speech.audio.spectrum import HOP_SAMPLES, SAMPLE_RATE
from shaperouter_service.system.fair_thread import FairThread

BANDS, WINDOW = 80, 100
# Seconds; only a failure waits so long.


def sound(seconds: float) -> np.ndarray:
    drawn = 3000 * np.random.default_rng(0).standard_normal(round(seconds * SAMPLE_RATE))
    return drawn.clip(-(2**15), 2**15 - 1).astype("<i2")


def wav(samples: np.ndarray) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, SAMPLE_RATE, format="WAV")
    return file.getvalue()


def thread() -> FairThread:
    return FairThread("test", limit=None, low_priority=False)


def whole(
    recording: Recording, content: bytes, decoding: FairThread, client: str = "client"
) -> WholeRecording:
    return WholeRecording(
        recording,
        partial(decode_audio, DeclaredAudio(), content),
        len(content),
        ClientDecoder(decoding, client),
        Share(FairMemory(10**9, full=RecordingMemoryError), client, RecordingMemoryError),
    )


def new_recording() -> Recording:
    return Recording(bands=BANDS, window_frames=WINDOW)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def act() -> None:
        async with asyncio.timeout(TIMEOUT):
            await scenario()

    asyncio.run(act())


def test_windows_are_those_of_the_recording_decoded_at_once() -> None:
    samples = sound(40.0)
    expected = new_recording()
    expected.append(samples.astype(np.float32) / 2**15)
    expected.finish()

    async def scenario() -> None:
        recording = new_recording()
        taken = whole(recording, wav(samples), thread())
        for first in [*range(0, 3900, WINDOW), 3950]:
            await taken.take(until=first + WINDOW, wait=False)
            frames = min(WINDOW, 4000 - first)
            window, right = recording.window(first, frames), expected.window(first, frames)
            np.testing.assert_array_equal(window[2:], right[2:])
            np.testing.assert_allclose(window[:2], right[:2], rtol=1e-6)
            recording.drop_before(first + WINDOW)
        assert recording.is_complete
        assert recording.seconds == 40.0

    run(scenario)


def test_only_what_is_needed_is_kept_decoded() -> None:
    async def scenario() -> None:
        recording = new_recording()
        await whole(recording, wav(sound(60.0)), thread()).take(until=WINDOW, wait=False)
        # A block is 65,536 samples.
        assert recording.kept_bytes <= 4 * (WINDOW * HOP_SAMPLES + 2**16)
        # What is still to come is known, though.
        assert recording.seconds == 60.0

    run(scenario)


def test_a_damaged_end_is_found_before_anything_is_transcribed() -> None:
    samples = sound(40.0).astype("<f4") / 2**15
    samples[-1] = np.nan
    file = io.BytesIO()
    soundfile.write(file, samples, SAMPLE_RATE, format="WAV", subtype="FLOAT")

    async def scenario() -> None:
        recording = new_recording()
        with pytest.raises(InvalidRequestError, match=r"got nan at 40\.000 seconds"):
            await whole(recording, file.getvalue(), thread()).take(until=WINDOW, wait=False)
        assert recording.frames == 0

    run(scenario)


def endless(decoded: list[int]) -> Iterator[np.ndarray]:
    """Blocks of a recording that has no end, each of which is counted."""
    while True:
        decoded.append(len(decoded))
        yield np.ones(1000, np.float32)


def test_a_short_recording_waits_for_no_long_one() -> None:
    async def scenario() -> None:
        decoding = thread()
        decoded: list[int] = []
        long = [
            asyncio.create_task(
                WholeRecording(
                    new_recording(),
                    partial(endless, decoded),
                    0,
                    ClientDecoder(decoding, f"client {number % 2}"),
                    Share(
                        FairMemory(10**9, full=RecordingMemoryError), "client", RecordingMemoryError
                    ),
                ).take(until=WINDOW, wait=False)
            )
            for number in range(20)
        ]
        recording = new_recording()
        await whole(recording, wav(sound(1.0)), decoding, "another").take(until=1, wait=False)
        assert recording.frames
        for task in long:
            task.cancel()
        await asyncio.gather(*long, return_exceptions=True)

    run(scenario)


def test_nothing_is_decoded_for_a_caller_that_has_gone() -> None:
    async def scenario() -> None:
        decoding = thread()
        decoded: list[int] = []
        taken = WholeRecording(
            new_recording(),
            partial(endless, decoded),
            0,
            ClientDecoder(decoding, "client"),
            Share(FairMemory(10**9, full=RecordingMemoryError), "client", RecordingMemoryError),
        )
        task = asyncio.create_task(taken.take(until=WINDOW, wait=False))
        while len(decoded) < 3:
            await decoding.run("another", 1, lambda: None)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        # The running work has ended when the next turn begins.
        await decoding.run("another", 1, lambda: None)
        count = len(decoded)
        await decoding.run("another", 1, lambda: None)
        assert len(decoded) == count

    run(scenario)
