"""Recordings that come in pieces, by the messages of a stream."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence

import numpy as np

from shaperouter.v1 import transcription_pb2
from shaperouter_service.api.recordings import (
    audio_violations,
    decode_audio,
    pcm_format,
)
from shaperouter_service.audio import PCMDecoder
from shaperouter_service.audio.recording import Recording
from shaperouter_service.audio.violations import check_bytes
from shaperouter_service.errors import InvalidRequestError, Violation

# Messages that are taken in before anybody asks for them: then the caller is held back.
MESSAGES_AHEAD = 64


class Incoming:
    """Adds what comes of a recording to it. Belongs to the event loop.

    Bare samples are decoded as they come, a file once it is whole.
    """

    def __init__(self, recording: Recording, audio: transcription_pb2.Audio) -> None:
        """Begins with the first piece.

        Args:
            recording: What is added to.
            audio: What the recording is, and its first piece.

        Raises:
            InvalidRequestError: What it is contradicts itself, or is over a limit.
        """
        if violations := list(audio_violations(audio)):
            raise InvalidRequestError(*violations)
        self._recording, self._audio = recording, audio
        form = pcm_format(audio)
        self._samples = PCMDecoder(form) if form is not None else None
        # None comes at the end, and an error where there is one.
        self._queue: asyncio.Queue[bytes | Exception | None] = asyncio.Queue(MESSAGES_AHEAD)
        self._queue.put_nowait(audio.content)
        self._bytes = 0
        self._pieces: list[bytes] = []

    @contextlib.asynccontextmanager
    async def reading(
        self, messages: AsyncIterator[transcription_pb2.TranscribeStreamRequest]
    ) -> AsyncGenerator[None, None]:
        """Reads messages inside of the context."""

        async def read() -> None:
            try:
                async for message in messages:
                    await self._queue.put(_piece(message))
            # Whatever it is, it is the reader's.
            except Exception as error:
                await self._queue.put(error)
            await self._queue.put(None)

        task = asyncio.create_task(read())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def take(self, *, wait: bool) -> None:
        """Adds what has come; see `listening.Take`.

        Raises:
            InvalidRequestError: A message or the recording is not as it must be.
        """
        if self._recording.is_complete:
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
        # In a thread: it takes a while. Meanwhile nobody looks at the recording.
        samples = await asyncio.to_thread(self._decode, come, is_last=is_last)
        self._recording.append(samples)
        if is_last:
            self._recording.finish()

    @staticmethod
    def _note(piece: bytes | Exception | None, come: list[bytes]) -> bool:
        """Adds a piece to what has come; returns whether it is the end."""
        if isinstance(piece, Exception):
            raise piece
        if piece is not None:
            come.append(piece)
        return piece is None

    def _decode(self, come: Sequence[bytes], *, is_last: bool) -> np.ndarray:
        if self._samples is not None:
            found = [self._samples.feed(piece) for piece in come]
            if is_last:
                found.append(self._samples.finish())
            return np.concatenate([np.zeros([0], np.float32), *found])
        self._pieces += come
        if not is_last:
            return np.zeros([0], np.float32)
        whole = transcription_pb2.Audio(content=b"".join(self._pieces), format=self._audio.format)
        self._pieces = []
        return decode_audio(whole)


def _piece(message: transcription_pb2.TranscribeStreamRequest) -> bytes:
    if not message.HasField("content"):
        got = message.WhichOneof("message") or "nothing"
        description = f"must be set in every message but the first, got {got}"
        raise InvalidRequestError(Violation(field="content", description=description))
    return message.content
