"""InferenceService: calls of functions and text encoders over gRPC."""

from dataclasses import replace
from typing import Any

from shaperouter.v1 import inference_pb2, inference_pb2_grpc
from shaperouter_service.edge.grpc_calls import current_call
from shaperouter_service.edge.offloading import translated
from shaperouter_service.serving.inference.service import InferenceService
from shaperouter_service.tensors.shapes import check_count
from shaperouter_service.wire.calls import inference_from_message, inference_to_message


class InferenceServicer(inference_pb2_grpc.InferenceServiceServicer):
    """See inference.proto."""

    def __init__(self, service: InferenceService) -> None:
        """Takes the core's service."""
        self._service = service

    async def Infer(  # noqa: N802 (gRPC's name)
        self, request: inference_pb2.InferRequest, context: Any
    ) -> inference_pb2.InferResponse:
        """Calls a model."""
        check_count(len(request.inputs), "inputs")
        size = request.ByteSize()
        asked = await translated(size, inference_from_message, request)
        asked = replace(asked, received_bytes=size)
        return inference_to_message(await self._service.infer(asked, current_call()))
