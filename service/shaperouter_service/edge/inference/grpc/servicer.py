"""GRPCInferenceService: the Open Inference Protocol v2 over gRPC."""

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from functools import partial
from typing import Any

import structlog

from shaperouter_service.auth import CallLimit
from shaperouter_service.edge.grpc_calls import CallGate, current_call, with_header
from shaperouter_service.edge.inference.generation_request import check_size
from shaperouter_service.edge.inference.grpc.messages import (
    FINAL,
    message_from_response,
    request_from_message,
    values_of,
)
from shaperouter_service.edge.inference.grpc.side_by_side import side_by_side
from shaperouter_service.edge.inference.grpc.tensors import is_raw
from shaperouter_service.edge.inference.protocol import EXTENSIONS, OpenInference, check_version
from shaperouter_service.edge.inference.stubs import grpc_service_pb2 as pb
from shaperouter_service.edge.inference.stubs import grpc_service_pb2_grpc
from shaperouter_service.edge.offloading import translated
from shaperouter_service.errors import DEFECT, ExhaustedError, ServiceError
from shaperouter_service.tensors.shapes import check_count

log = structlog.get_logger(__name__)

# Maximum streams of requests, which count only here while they are idle. Each takes some 30 kB.
MAX_STREAMS = 4096


class InferenceServicer(grpc_service_pb2_grpc.GRPCInferenceServiceServicer):
    """See grpc_service.proto."""

    # The names of methods are gRPC's.
    # ruff: noqa: N802

    def __init__(self, protocol: OpenInference, call_gate: CallGate) -> None:
        """Takes what answers, and the gate that each request of a stream passes."""
        self._protocol = protocol
        self._call_gate = call_gate
        self._streams = CallLimit(MAX_STREAMS)

    async def ServerLive(
        self, request: pb.ServerLiveRequest, context: Any
    ) -> pb.ServerLiveResponse:
        """Tells that the server is alive."""
        return pb.ServerLiveResponse(live=True)

    async def ServerReady(
        self, request: pb.ServerReadyRequest, context: Any
    ) -> pb.ServerReadyResponse:
        """Tells whether callers should come."""
        return pb.ServerReadyResponse(ready=self._protocol.is_ready)

    async def ModelReady(
        self, request: pb.ModelReadyRequest, context: Any
    ) -> pb.ModelReadyResponse:
        """Tells whether one model can be called."""
        return pb.ModelReadyResponse(
            ready=self._protocol.is_model_ready(request.name, request.version)
        )

    async def ServerMetadata(
        self, request: pb.ServerMetadataRequest, context: Any
    ) -> pb.ServerMetadataResponse:
        """Describes the server."""
        return self._protocol.server(EXTENSIONS)

    async def ModelMetadata(
        self, request: pb.ModelMetadataRequest, context: Any
    ) -> pb.ModelMetadataResponse:
        """Describes one model's tensors."""
        return self._protocol.metadata(request.name, request.version)

    async def ModelConfig(
        self, request: pb.ModelConfigRequest, context: Any
    ) -> pb.ModelConfigResponse:
        """Describes how one model is batched and scheduled."""
        return pb.ModelConfigResponse(
            config=self._protocol.configuration(request.name, request.version)
        )

    async def ModelStatistics(
        self, request: pb.ModelStatisticsRequest, context: Any
    ) -> pb.ModelStatisticsResponse:
        """Counts and times the requests of models since the router started."""
        return self._protocol.statistics(request.name, request.version)

    async def RepositoryIndex(
        self, request: pb.RepositoryIndexRequest, context: Any
    ) -> pb.RepositoryIndexResponse:
        """Lists the models."""
        return await self._protocol.index(only_ready=request.ready)

    async def RepositoryModelLoad(
        self, request: pb.RepositoryModelLoadRequest, context: Any
    ) -> pb.RepositoryModelLoadResponse:
        """Loads a model, or a new revision of one."""
        parameters = values_of(request.parameters)
        await self._protocol.load(
            request.model_name, request.repository_name, parameters, current_call()
        )
        return pb.RepositoryModelLoadResponse()

    async def RepositoryModelUnload(
        self, request: pb.RepositoryModelUnloadRequest, context: Any
    ) -> pb.RepositoryModelUnloadResponse:
        """Stops serving a model."""
        parameters = values_of(request.parameters)
        await self._protocol.unload(request.model_name, request.repository_name, parameters)
        return pb.RepositoryModelUnloadResponse()

    async def ModelInfer(
        self, request: pb.ModelInferRequest, context: Any
    ) -> pb.ModelInferResponse:
        """Runs a model once."""
        answer = pb.ModelInferResponse()
        responses = with_header(self._responses(request, may_stream=False), context)
        async with contextlib.aclosing(responses):
            # There is one; reading on ends the request.
            async for response in responses:
                answer = response
        return answer

    async def ModelStreamInfer(
        self, requests: AsyncIterator[pb.ModelInferRequest], context: Any
    ) -> AsyncIterator[pb.ModelStreamInferResponse]:
        """Runs models for any number of requests, side by side."""
        responses = side_by_side(requests, lambda request: self._in_stream(request, context))
        with self._streams.admitted(current_call().client):
            async with contextlib.aclosing(with_header(responses, context)) as begun:
                async for response in begun:
                    yield response

    async def _in_stream(
        self, request: pb.ModelInferRequest, context: Any
    ) -> AsyncGenerator[pb.ModelStreamInferResponse, None]:
        """The responses to one of a stream's requests; its error is one of them."""
        try:
            with self._call_gate.request_of_stream(context):
                responses = self._responses(request, may_stream=True)
                async with contextlib.aclosing(responses):
                    async for response in responses:
                        yield pb.ModelStreamInferResponse(infer_response=response)
        # The stream ends with any exception that leaves this, and with it up to 255 other requests.
        except Exception as error:
            message = str(error)
            if not isinstance(error, ServiceError):
                log.exception("unexpected exception", request_id=current_call().request_id)
                message = str(ExhaustedError.of(error) or DEFECT)
            failed = pb.ModelStreamInferResponse(error_message=message)
            failed.infer_response.id = request.id
            failed.infer_response.parameters[FINAL].bool_param = True
            yield failed

    async def _responses(
        self, request: pb.ModelInferRequest, *, may_stream: bool
    ) -> AsyncGenerator[pb.ModelInferResponse, None]:
        """The responses to a request: one, unless text streams as it is generated."""
        check_version(request.model_name, request.model_version)
        check_count(len(request.inputs), "inputs")
        check_count(len(request.outputs), "outputs")
        size = request.ByteSize()
        given = {*request.parameters, *(tensor.name for tensor in request.inputs)}
        if self._protocol.generates(request.model_name, given):
            check_size(size)
        asked = await translated(size, request_from_message, request)
        raw = is_raw(request)
        responses = self._protocol.responses(asked, current_call(), may_stream=may_stream)
        async with contextlib.aclosing(responses):
            async for response in responses:
                if response is not None:
                    yield await translated(
                        response.size, partial(message_from_response, response, raw=raw)
                    )
