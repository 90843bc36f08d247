"""Recordings that have arrived completely, decoded as they are transcribed."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

import numpy as np

from shaperouter_service.serving.fair_memory import Share
from shaperouter_service.speech.audio.recording import Recording, RecordingStats
from shaperouter_service.system.fair_thread import FairThread

T = TypeVar("T")

# Seconds of one turn of decoding, which may overrun by one block.
TURN_SECONDS = 0.01


class ClientDecoder:
    """The thread that decodes recordings, for one request of a client, taking turns with others.

    A turn takes a few milliseconds. So a short recording never waits for a long one, and nothing
    more is decoded for a caller that has left.
    """

    def __init__(self, thread: FairThread, client: str) -> None:
        """Starts without work.

        Args:
            thread: The thread, which all requests share.
            client: The client.
        """
        self._thread, self._client = thread, client

    async def run(self, work: Callable[[], T]) -> T:
        """Does the work of one turn in the thread."""
        return await self._thread.run(self._client, 1, work)


class WholeRecording:
    """Decodes a file or raw samples as far as needed. Only the event loop may use it.

    The content is decoded twice: first to measure and check the recording, and again as it is
    transcribed. So it takes only the memory of the content and of one or two windows, however long
    the recording is.
    """

    def __init__(
        self,
        recording: Recording,
        decode: Callable[[], Iterator[np.ndarray]],
        size: int,
        decoder: ClientDecoder,
        share: Share,
    ) -> None:
        """Starts without decoding.

        Args:
            recording: The recording to add to; empty.
            decode: Starts a decoder of the content.
            size: Size of the content before decoding, in bytes.
            decoder: The decoding thread, for this request.
            share: The memory of the recording.
        """
        self._recording, self._decode, self._size = recording, decode, size
        self._decoder, self._share = decoder, share
        self._blocks: Iterator[np.ndarray] | None = None

    async def take(self, *, until: int, wait: bool) -> None:
        """Adds what is needed; see `loop.Take`. It never has to wait.

        Raises:
            InvalidRequestError: The recording is invalid.
        """
        if self._blocks is None:
            self._share.resize(self._size)
            self._recording.set_stats(await self._measured())
            self._blocks = self._decode()
        while not _has(self._recording, until):
            await self._decoder.run(partial(_add_until, self._recording, self._blocks, until))
        self._share.resize(self._size + self._recording.kept_bytes, begun=True)

    async def _measured(self) -> RecordingStats:
        measured, blocks = self._recording.empty_copy(), self._decode()
        while True:
            measure = await self._decoder.run(partial(_measure_more, measured, blocks))
            if measured.is_complete:
                return measure


def add_next(recording: Recording, blocks: Iterator[np.ndarray]) -> bool:
    """Adds the next block to a recording; returns whether there was one."""
    block = next(blocks, None)
    if block is not None:
        recording.append(block)
    return block is not None


def _has(recording: Recording, frames: int) -> bool:
    return recording.is_complete or recording.frames >= frames


def _add_until(recording: Recording, blocks: Iterator[np.ndarray], frames: int) -> None:
    """Adds blocks until the recording has `frames` frames, or the turn is over."""
    end = time.monotonic() + TURN_SECONDS
    while not _has(recording, frames) and time.monotonic() < end:
        if not add_next(recording, blocks):
            recording.finish()


def _measure_more(measured: Recording, blocks: Iterator[np.ndarray]) -> RecordingStats:
    """Measures the blocks that one turn decodes."""
    end = time.monotonic() + TURN_SECONDS
    while not measured.is_complete and time.monotonic() < end:
        if not add_next(measured, blocks):
            measured.finish()
        measured.measure()
        measured.drop_before(measured.frames)
    return measured.measure()
