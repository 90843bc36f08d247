"""Recordings that arrive in pieces."""

import asyncio
import contextlib
import io
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from functools import partial

import numpy as np

from shaperouter_service.serving.fair_memory import Share
from shaperouter_service.serving.transcription.whole_recordings import (
    ClientDecoder,
    WholeRecording,
    add_next,
)
from shaperouter_service.speech.audio import SAMPLE_RATE, PCMDecoder
from shaperouter_service.speech.audio.declared import DeclaredAudio, decode_audio
from shaperouter_service.speech.audio.pcm import BLOCK_BYTES
from shaperouter_service.speech.audio.recording import Recording
from shaperouter_service.speech.audio.spectrum import HOP_SAMPLES
from shaperouter_service.speech.audio.violations import check_bytes

# Maximum messages and bytes that are received ahead of use; then the caller must wait.
MESSAGES_AHEAD = 64
BYTES_AHEAD = 2**20
# Frames of raw samples to decode ahead, 5 minutes: the more of a recording is known, the better is
# the estimate of its level.
FRAMES_AHEAD = 300 * SAMPLE_RATE // HOP_SAMPLES
# Bytes of raw samples that the event loop decodes at once; takes less than a millisecond.
INLINE_BYTES = 2**15


class Incoming:
    """Adds arriving pieces to a recording. Only the event loop may use it.

    Raw samples are decoded as they arrive, a file once it is complete.
    """

    def __init__(
        self,
        recording: Recording,
        audio: DeclaredAudio,
        content: bytes,
        decoder: ClientDecoder,
        share: Share,
    ) -> None:
        """Begins with the first piece.

        Args:
            recording: The recording to add to.
            audio: The format of the recording.
            content: Its first piece.
            decoder: Decodes files for the request.
            share: The memory of the recording.

        Raises:
            InvalidRequestError: The format contradicts itself or exceeds a limit.
        """
        pcm_format = audio.pcm_format()
        self._recording, self._audio = recording, audio
        self._decoder, self._share = decoder, share
        self._samples = PCMDecoder(pcm_format) if pcm_format is not None else None
        # None marks the end, and an error a failure.
        self._queue: asyncio.Queue[bytes | Exception | None] = asyncio.Queue(MESSAGES_AHEAD)
        self._queue.put_nowait(content)
        # Bytes in the queue, and an event that is set while there is room for more.
        self._ahead = len(content)
        self._room = asyncio.Event()
        self._room.set()
        self._bytes = 0
        # For a file: the bytes that have arrived, and the recording once it is complete.
        self._file = io.BytesIO()
        self._whole: WholeRecording | None = None

    @contextlib.asynccontextmanager
    async def reading(self, pieces: AsyncIterator[bytes]) -> AsyncGenerator[None, None]:
        """Reads the other pieces inside the context."""

        async def read() -> None:
            try:
                async for piece in pieces:
                    self._ahead += len(piece)
                    await self._queue.put(piece)
                    if self._ahead >= BYTES_AHEAD:
                        self._room.clear()
                    await self._room.wait()
            # The consumer handles every exception.
            except Exception as error:
                await self._queue.put(error)
            await self._queue.put(None)

        task = asyncio.create_task(read())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def take(self, *, until: int, wait: bool) -> None:
        """Adds what has arrived; see `loop.Take`.

        Raises:
            InvalidRequestError: A piece or the recording is invalid.
            RecordingMemoryError: Recordings take too much memory.
        """
        recording = self._recording
        if self._whole is not None:
            await self._whole.take(until=until, wait=wait)
            return
        if recording.is_complete or recording.frames >= until + FRAMES_AHEAD:
            return
        come: list[bytes] = []
        is_last = False
        if wait:
            is_last = self._note(await self._queue.get(), come)
        while not is_last and not self._queue.empty():
            is_last = self._note(self._queue.get_nowait(), come)
        self._bytes += sum(map(len, come))
        if self._bytes or is_last:
            check_bytes(self._bytes)
        if self._samples is not None:
            await self._decode(self._samples, come, is_last=is_last)
            self._share.resize(self._ahead + recording.kept_bytes, begun=True)
            return
        self._file.writelines(come)
        self._share.resize(self._ahead + self._bytes)
        if is_last:
            # The same bytes, without a copy.
            decode = partial(decode_audio, self._audio, self._file.getvalue())
            self._file.close()
            self._whole = WholeRecording(recording, decode, self._bytes, self._decoder, self._share)
            await self._whole.take(until=until, wait=wait)

    def _note(self, piece: bytes | Exception | None, come: list[bytes]) -> bool:
        """Adds a piece to those that have arrived; returns whether it is the end."""
        if isinstance(piece, Exception):
            raise piece
        if piece is not None:
            come.append(piece)
            self._ahead -= len(piece)
            if self._ahead < BYTES_AHEAD:
                self._room.set()
        return piece is None

    async def _decode(self, decoder: PCMDecoder, come: Sequence[bytes], *, is_last: bool) -> None:
        blocks = _decoded(decoder, come, is_last=is_last)
        if sum(map(len, come)) <= INLINE_BYTES:
            for block in blocks:
                self._recording.append(block)
        else:
            added = True
            while added:
                added = await self._decoder.run(partial(add_next, self._recording, blocks))
        if is_last:
            self._recording.finish()


def _decoded(decoder: PCMDecoder, come: Sequence[bytes], *, is_last: bool) -> Iterator[np.ndarray]:
    for piece in come:
        for start in range(0, len(piece), BLOCK_BYTES):
            yield decoder.feed(piece[start : start + BLOCK_BYTES])
    if is_last:
        yield decoder.finish()
