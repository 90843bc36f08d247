"""Recordings grow by the messages of a stream."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Sequence
from typing import Any

import numpy as np
import pytest
import soundfile

from shaperouter_service.errors import InvalidRequestError, RecordingMemoryError
from shaperouter_service.serving.fair_memory import FairMemory, Share
from shaperouter_service.serving.transcription.incoming import BYTES_AHEAD, FRAMES_AHEAD, Incoming
from shaperouter_service.serving.transcription.whole_recordings import ClientDecoder
from shaperouter_service.speech.audio import Encoding
from shaperouter_service.speech.audio.declared import DeclaredAudio
from shaperouter_service.speech.audio.recording import Recording
from shaperouter_service.system.fair_thread import FairThread

PCM: dict[str, Any] = {"format": Encoding.S16LE, "sample_rate": 16_000}
SAMPLES = (3000 * np.sin(np.arange(4000) / 7)).astype("<i2")


# More frames than there are.
ALL = 10**6


def begun(
    recording: Recording,
    audio: DeclaredAudio,
    first: bytes = b"",
    memory: FairMemory | None = None,
) -> Incoming:
    decoder = ClientDecoder(FairThread("test", limit=None, low_priority=False), "client")
    share = Share(
        memory or FairMemory(10**9, full=RecordingMemoryError), "client", RecordingMemoryError
    )
    return Incoming(recording, audio, first, decoder, share)


def pieces(content: bytes, size: int) -> list[bytes]:
    return [content[at : at + size] for at in range(0, len(content), size)]


def received(messages: Sequence[bytes], *, first: bytes = b"", **audio: Any) -> list[int]:
    """Frames that there are each time that something was waited for; the last are all."""
    recording = Recording(bands=80, window_frames=100)

    async def receive() -> list[int]:
        async def come() -> AsyncIterator[bytes]:
            for message in messages:
                yield message
                await asyncio.sleep(0)

        incoming = begun(recording, DeclaredAudio(**audio), first)
        frames = []
        async with incoming.reading(come()):
            while not recording.is_complete:
                await incoming.take(until=ALL, wait=True)
                frames.append(recording.frames)
        return frames

    return asyncio.run(receive())


def test_bare_samples_are_there_as_they_come() -> None:
    content = SAMPLES.tobytes()
    frames = received(pieces(content[999:], 501), first=content[:999], **PCM)
    assert frames[-1] == len(SAMPLES) // 160
    assert 0 < frames[0] < frames[-1]


def test_a_file_is_there_once_it_is_whole() -> None:
    file = io.BytesIO()
    soundfile.write(file, SAMPLES, 16_000, format="WAV")
    frames = received(pieces(file.getvalue(), 1000))
    assert set(frames[:-1]) <= {0}
    assert frames[-1] == len(SAMPLES) // 160


@pytest.mark.parametrize(
    ("messages", "audio", "error"),
    [
        ([], PCM, "audio.content: must have 1 to .* bytes, got 0"),
        ([], {}, "audio.content: must have 1 to .* bytes, got 0"),
        ([b"abc"], PCM, "audio.content: must be whole frames of 2 bytes"),
        (
            [b"ab"],
            PCM | {"sample_rate": 192_000},
            "audio.content: must have a sample other than 0, got 0 samples",
        ),
        ([b"abcdefghi"], {}, "audio.content: must be in one of the formats WAV"),
    ],
)
def test_what_is_wrong_with_a_stream_is_named(
    messages: list[bytes], audio: dict[str, Any], error: str
) -> None:
    with pytest.raises(InvalidRequestError, match=error):
        received(messages, **audio)


def test_a_stream_contradicts_itself_before_anything_comes() -> None:
    audio = DeclaredAudio(format=Encoding.S16LE)
    with pytest.raises(InvalidRequestError, match=r"audio\.sample_rate: must be set"):
        begun(Recording(bands=80, window_frames=100), audio)


def test_a_caller_is_held_back_by_bytes() -> None:
    sent = 0

    async def flood() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 1
            yield bytes(BYTES_AHEAD // 2)

    async def receive() -> None:
        recording = Recording(bands=80, window_frames=100)
        incoming = begun(recording, DeclaredAudio(**PCM))
        async with incoming.reading(flood()):
            for _ in range(10):
                await asyncio.sleep(0)
            assert sent == 2
            await incoming.take(until=ALL, wait=True)
            for _ in range(10):
                await asyncio.sleep(0)
            assert 2 < sent <= 4

    asyncio.run(receive())


def test_samples_are_decoded_no_further_ahead_than_they_help() -> None:
    async def receive() -> None:
        recording = Recording(bands=80, window_frames=100)

        async def come() -> AsyncIterator[bytes]:
            while True:
                # A second.
                yield SAMPLES.tobytes() * 4

        incoming = begun(recording, DeclaredAudio(**PCM))
        async with incoming.reading(come()):
            while recording.frames < 100 + FRAMES_AHEAD:
                await incoming.take(until=100, wait=True)
            frames = recording.frames
            await incoming.take(until=100, wait=False)
            assert recording.frames == frames

    asyncio.run(receive())


def test_a_file_takes_memory_as_it_comes() -> None:
    async def receive() -> None:
        async def come() -> AsyncIterator[bytes]:
            while True:
                yield bytes(1000)
                await asyncio.sleep(0)

        recording = Recording(bands=80, window_frames=100)
        memory = FairMemory(20_000, full=RecordingMemoryError)
        incoming = begun(recording, DeclaredAudio(), memory=memory)
        async with incoming.reading(come()):
            while True:
                await incoming.take(until=100, wait=True)

    with pytest.raises(InvalidRequestError, match="must need at most 10000 bytes of memory"):
        asyncio.run(receive())
