# Generated from _async_streams.py by `make blocking-client`. Do not edit.

"""Streams of a call's results, as they arrive."""

import contextlib
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from shaperouter._errors import ShaperouterError
from shaperouter._generation import Delta, Generation, TokenLogprobs
from shaperouter._generation_events import GenerationEvents
from shaperouter._graph import Graph
from shaperouter._repeated_call import RepeatedCall
from shaperouter._signature import Signature
from shaperouter._stream_events import GraphEvents, StreamEvents
from shaperouter._transcription import DetectedLanguage, TranscribedSegment, Transcription
from shaperouter._transcription_events import TranscriptionEvents
from shaperouter._transcription_requests import RecordingMessages
from shaperouter.v1 import generation_pb2, transcription_pb2

_EventT = TypeVar("_EventT")
_ItemT = TypeVar("_ItemT")


class _Stream(Iterator[_ItemT], Generic[_EventT, _ItemT]):
    """Reads the events of a call and returns the items that they contain."""

    def __init__(
        self,
        call: RepeatedCall[_EventT],
        events: StreamEvents[_EventT, _ItemT],
    ) -> None:
        self._call = call
        self._events = events

    def __del__(self) -> None:
        """Cancels the call if it has not ended; gRPC for asyncio would let it go on."""
        call = getattr(self, "_call", None)
        if call is not None:  # the stream was made completely
            with contextlib.suppress(RuntimeError):  # the event loop is closed, and the call ended
                call.cancel()

    def cancel(self) -> None:
        """Cancels the call: its reader gets `CallCancelledError`. No effect after the end.

        Any thread may call it; in asyncio, any task.
        """
        self._call.cancel()

    def __next__(self) -> _ItemT:
        """Waits for the next item.

        Raises:
            ShaperouterError: The call failed.
        """
        while True:
            try:
                event = self._call.read()
            except StopIteration:
                self._events.end()
                raise
            except ShaperouterError:
                if self._events.complete:  # the completion came before the loss
                    raise StopIteration from None
                raise
            item = self._events.add(event)
            if item is not None:
                return item

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


class GenerationStream(_Stream[generation_pb2.GenerateStreamResponse, Delta]):
    """The deltas of one generation, in order; created by the client's ``stream``.

    After the last delta, `result` is the complete generation. Leaving the ``with`` block
    early, or dropping the stream, cancels the call and frees its slot on the service.

    Only one thread or task may iterate. Cancelling the reading task cancels the call, too.
    """

    def __init__(
        self,
        call: RepeatedCall[generation_pb2.GenerateStreamResponse],
        *,
        on_stall: Callable[[Signature], None] | None,
    ) -> None:
        """Wraps a call that has been started."""
        self._generation = GenerationEvents(on_stall)
        super().__init__(call, self._generation)

    @property
    def prompt_logprobs(self) -> tuple[TokenLogprobs, ...]:
        """The log-probabilities of the prompt, if requested; complete before the first delta."""
        return self._generation.prompt_logprobs

    @property
    def result(self) -> Generation:
        """The complete generation.

        Raises:
            RuntimeError: The stream has not been read to the end.
        """
        return self._generation.result


class TranscriptionStream(_Stream[transcription_pb2.TranscribeStreamResponse, TranscribedSegment]):
    """The segments of one transcript, in order; created by the client's ``transcribe_stream``.

    After the last segment, `result` is the complete transcript. Leaving the ``with`` block
    early, or dropping the stream, cancels the call.

    Only one thread or task may iterate; gRPC reads the recording in another. Cancelling the reading
    task cancels the call, too.
    """

    def __init__(
        self,
        call: RepeatedCall[transcription_pb2.TranscribeStreamResponse],
        *,
        events: TranscriptionEvents,
        messages: RecordingMessages,
    ) -> None:
        """Wraps a call that has been started."""
        super().__init__(call, events)
        self._transcription = events
        self._messages = messages

    @property
    def language(self) -> DetectedLanguage | None:
        """The language; None until it is known, which happens before the first segment."""
        return self._transcription.language

    @property
    def result(self) -> Transcription:
        """The complete transcript.

        Raises:
            RuntimeError: The stream has not been read to the end.
        """
        return self._transcription.result

    def __next__(self) -> TranscribedSegment:
        """Waits for the next segment.

        Raises:
            ShaperouterError: The call failed with an error of ``transcribe``.
            Exception: Reading the recording raised it.
        """
        try:
            return super().__next__()
        except ShaperouterError:
            if self._messages.error is not None:
                raise self._messages.error from None
            raise


class GraphStream(_Stream[Any, list[Graph]]):
    """Successive lists of graphs; created by the client's ``watch_graphs`` and ``warm_graphs``.

    Leaving the ``with`` block early, or dropping the stream, cancels the call. It does not
    stop the compilation of graphs.

    Only one thread or task may iterate. Cancelling the reading task cancels the call, too.
    """

    def __init__(self, call: RepeatedCall[Any]) -> None:
        """Wraps a call that has been started and whose responses contain graphs."""
        super().__init__(call, GraphEvents())
