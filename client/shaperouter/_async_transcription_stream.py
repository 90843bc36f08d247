"""A stream of transcribed segments, for asyncio."""

from collections.abc import AsyncIterator
from types import TracebackType
from typing import TYPE_CHECKING, Self, cast

import grpc.aio

from shaperouter._async_stream import async_errors
from shaperouter._errors import ShaperouterError
from shaperouter._transcription import DetectedLanguage, TranscribedSegment, Transcription
from shaperouter._transcription_events import TranscriptionEvents
from shaperouter._transcription_requests import Outgoing

if TYPE_CHECKING:
    from shaperouter.v1 import transcription_pb2


class AsyncTranscriptionStream(AsyncIterator[TranscribedSegment]):
    """The segments of one transcript, in order; created by ``AsyncClient.transcribe_stream``.

    After the last segment, `result` is the complete transcript. Leaving an ``async with`` block
    early, cancelling the reading task, or dropping the stream cancels the call. Only one task may
    iterate.
    """

    def __init__(
        self,
        call: "grpc.aio.StreamStreamCall[transcription_pb2.TranscribeStreamRequest, "
        "transcription_pb2.TranscribeStreamResponse]",
        *,
        address: str,
        deadline: float | None,
        events: TranscriptionEvents,
        outgoing: Outgoing,
    ) -> None:
        """Wraps a call that has been started."""
        self._call = call
        self._address = address
        self._deadline = deadline
        self._events = events
        self._outgoing = outgoing

    @property
    def language(self) -> DetectedLanguage | None:
        """The language; None until it is known, which happens before the first segment."""
        return self._events.language

    @property
    def result(self) -> Transcription:
        """The complete transcript.

        Raises:
            RuntimeError: The stream has not been read to the end.
        """
        return self._events.result

    def cancel(self) -> None:
        """Cancels the call: its reader gets `CallCancelledError`. No effect after the end."""
        self._call.cancel()

    async def __anext__(self) -> TranscribedSegment:
        """Waits for the next segment.

        Raises:
            ShaperouterError: The call failed with an error of ``Client.transcribe``.
            Exception: Reading the recording raised it.
        """
        while True:
            try:
                with async_errors(address=self._address, deadline=self._deadline):
                    event = await self._call.read()
            except ShaperouterError:
                if self._outgoing.error is not None:
                    raise self._outgoing.error from None
                if not self._events.complete:
                    raise
                event = grpc.aio.EOF  # the completion came before the loss
            if event is grpc.aio.EOF:
                self._events.end()
                raise StopAsyncIteration
            segment = self._events.add(cast("transcription_pb2.TranscribeStreamResponse", event))
            if segment is not None:
                return segment

    async def __aenter__(self) -> Self:
        """Returns the stream itself."""
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Cancels the call if it has not ended."""
        self.cancel()
