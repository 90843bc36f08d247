"""GenerationService: generations over gRPC."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from shaperouter.v1 import generation_pb2, generation_pb2_grpc
from shaperouter_service.edge.grpc_calls import current_call, with_header
from shaperouter_service.edge.offloading import translated
from shaperouter_service.serving.generation.completion import collected
from shaperouter_service.serving.generation.service import GenerationService
from shaperouter_service.wire.generation import (
    generation_event_to_message,
    generation_from_message,
    generation_to_message,
)


class GenerationServicer(generation_pb2_grpc.GenerationServiceServicer):
    """See generation.proto."""

    def __init__(self, service: GenerationService) -> None:
        """Takes the core's service."""
        self._service = service

    async def Generate(  # noqa: N802 (gRPC's name)
        self, request: generation_pb2.GenerateRequest, context: Any
    ) -> generation_pb2.GenerateResponse:
        """Answers once, when the generation has ended."""
        call = current_call()
        asked = generation_from_message(request)
        with self._service.keeping_logprobs(call) as kept:
            events = self._service.generate(asked, call, keeps=kept.of_all)
            async with contextlib.aclosing(with_header(events, context)) as answers:
                generation = await collected(answers)
            return await translated(kept.size, generation_to_message, generation)

    async def GenerateStream(  # noqa: N802 (gRPC's name)
        self, request: generation_pb2.GenerateStreamRequest, context: Any
    ) -> AsyncIterator[generation_pb2.GenerateStreamResponse]:
        """Answers as tokens are generated."""
        events = self._service.generate(generation_from_message(request), current_call())
        async with contextlib.aclosing(with_header(events, context)) as answers:
            async for event in answers:
                yield generation_event_to_message(event)
