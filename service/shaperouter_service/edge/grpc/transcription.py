"""TranscriptionService: transcriptions over gRPC."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from shaperouter.v1 import transcription_pb2, transcription_pb2_grpc
from shaperouter_service.edge.grpc.calls import current_call, with_header
from shaperouter_service.errors import InvalidRequestError, Violation
from shaperouter_service.serving.transcription.service import TranscriptionService


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
        events = with_header(self._service.transcribe(request, None, current_call()), context)
        async with contextlib.aclosing(events):
            async for event in events:
                if event.HasField("segment"):
                    response.segments.append(event.segment)
                elif event.HasField("completion"):
                    response.completion.CopyFrom(event.completion)
        response.text = "".join(segment.text for segment in response.segments)
        return response

    async def TranscribeStream(  # noqa: N802 (gRPC's name)
        self, requests: AsyncIterator[transcription_pb2.TranscribeStreamRequest], context: Any
    ) -> AsyncIterator[transcription_pb2.TranscribeStreamResponse]:
        """Answers with segments as they become final."""
        first = await anext(aiter(requests), None)
        if first is None or not first.HasField("start"):
            got = "no message" if first is None else first.WhichOneof("message") or "nothing"
            description = f"must be set in the first message, got {got}"
            raise InvalidRequestError(Violation(field="start", description=description))
        events = self._service.transcribe(first.start, requests, current_call())
        async with contextlib.aclosing(with_header(events, context)) as answers:
            async for answer in answers:
                yield answer
