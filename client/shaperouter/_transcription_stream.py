"""A stream of transcribed segments, for blocking code."""

from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Self

import grpc

from shaperouter._status import error_of
from shaperouter._transcription import DetectedLanguage, TranscribedSegment, Transcription
from shaperouter._transcription_events import TranscriptionEvents
from shaperouter._transcription_requests import Outgoing

if TYPE_CHECKING:
    # gRPC's type for a call exists only in its stubs.
    from grpc import _CallIterator

    from shaperouter.v1 import transcription_pb2


class TranscriptionStream(Iterator[TranscribedSegment]):
    """The segments of one transcript, in order; created by ``Client.transcribe_stream``.

    After the last segment, `result` is the complete transcript. Leaving a ``with`` block early, or
    dropping the stream, cancels the call.

    Only one thread may iterate; gRPC reads the recording in another. Any thread may call `cancel`.
    """

    def __init__(
        self,
        call: "_CallIterator[transcription_pb2.TranscribeStreamResponse]",
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

    def __next__(self) -> TranscribedSegment:
        """Waits for the next segment.

        Raises:
            ShaperouterError: The call failed with an error of ``Client.transcribe``.
            Exception: Reading the recording raised it.
        """
        while True:
            try:
                event = next(self._call)
            except StopIteration:
                self._events.end()
                raise
            except grpc.RpcError as error:
                if self._events.complete:  # the completion came before the loss
                    raise StopIteration from None
                if self._outgoing.error is not None:
                    raise self._outgoing.error from None
                raise error_of(error, address=self._address, deadline=self._deadline) from error
            segment = self._events.add(event)
            if segment is not None:
                return segment

    def __enter__(self) -> Self:
        """Returns the stream itself."""
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Cancels the call if it has not ended."""
        self.cancel()
