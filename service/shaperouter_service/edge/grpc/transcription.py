"""TranscriptionService: transcriptions over gRPC."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from shaperouter.v1 import transcription_pb2, transcription_pb2_grpc
from shaperouter_service.edge.grpc_calls import current_call, with_header
from shaperouter_service.errors import InvalidRequestError
from shaperouter_service.generation.transcription import TranscriptionCompletion
from shaperouter_service.serving.transcription.service import TranscriptionService
from shaperouter_service.speech.transcription import Segment
from shaperouter_service.wire.transcription import (
    completion_to_message,
    segment_to_message,
    transcription_event_to_message,
    transcription_from_message,
)

StreamRequest = transcription_pb2.TranscribeStreamRequest


class TranscriptionServicer(transcription_pb2_grpc.TranscriptionServiceServicer):
    """See transcription.proto."""

    def __init__(self, service: TranscriptionService) -> None:
        """Takes the core's service."""
        self._service = service

    async def Transcribe(  # noqa: N802 (gRPC's name)
        self, request: transcription_pb2.TranscribeRequest, context: Any
    ) -> transcription_pb2.TranscribeResponse:
        """Answers once, when the whole recording is transcribed."""
        response = transcription_pb2.TranscribeResponse()
        asked = transcription_from_message(request)
        events = with_header(self._service.transcribe(asked, None, current_call()), context)
        async with contextlib.aclosing(events):
            async for event in events:
                match event:
                    case Segment():
                        response.segments.append(segment_to_message(event))
                    case TranscriptionCompletion():
                        response.completion.CopyFrom(completion_to_message(event))
        response.text = "".join(segment.text for segment in response.segments)
        return response

    async def TranscribeStream(  # noqa: N802 (gRPC's name)
        self, requests: AsyncIterator[StreamRequest], context: Any
    ) -> AsyncIterator[transcription_pb2.TranscribeStreamResponse]:
        """Answers with segments as they become final."""
        first = await anext(aiter(requests), None)
        if first is None or not first.HasField("start"):
            got = "no message" if first is None else first.WhichOneof("message") or "nothing"
            description = f"must be set in the first message, got {got}"
            raise InvalidRequestError.of("start", description)
        asked = transcription_from_message(first.start)
        events = self._service.transcribe(asked, pieces_of(requests), current_call())
        async with contextlib.aclosing(with_header(events, context)) as answers:
            async for event in answers:
                yield transcription_event_to_message(event)


async def pieces_of(messages: AsyncIterator[StreamRequest]) -> AsyncIterator[bytes]:
    """Yields the pieces of a recording from the messages after the first.

    Raises:
        InvalidRequestError: A message has no piece.
    """
    async for message in messages:
        if not message.HasField("content"):
            got = message.WhichOneof("message") or "nothing"
            description = f"must be set in every message except the first, got {got}"
            raise InvalidRequestError.of("content", description)
        yield message.content
