"""GRPCInferenceService: the Open Inference Protocol v2 over gRPC."""

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from shaperouter_service import __version__
from shaperouter_service.edge.grpc_calls import CallGate, current_call, translated, with_header
from shaperouter_service.edge.inference.answers import FINAL, VERSION, answers
from shaperouter_service.edge.inference.calls import call_from_request, response_of
from shaperouter_service.edge.inference.descriptions import (
    configuration,
    index_entry,
    metadata,
    statistics,
)
from shaperouter_service.edge.inference.generation_inputs import STREAM, TEXT
from shaperouter_service.edge.inference.generation_request import generation_from_request
from shaperouter_service.edge.inference.side_by_side import side_by_side
from shaperouter_service.edge.inference.stubs import grpc_service_pb2 as pb
from shaperouter_service.edge.inference.stubs import grpc_service_pb2_grpc
from shaperouter_service.errors import (
    FixedModelsError,
    InvalidRequestError,
    ModelLoadingError,
    ServiceError,
    UnknownVersionError,
    Violation,
)
from shaperouter_service.routing.served_model import ServedModel
from shaperouter_service.serving.core import Core
from shaperouter_service.serving.models import answers_once

# Extensions of the protocol that are served, by Triton's names.
EXTENSIONS = ("model_configuration", "parameters", "statistics")


class InferenceServicer(grpc_service_pb2_grpc.GRPCInferenceServiceServicer):
    """See grpc_service.proto."""

    # The names of methods are gRPC's.
    # ruff: noqa: N802

    def __init__(self, core: Core, call_gate: CallGate) -> None:
        """Takes the core, and the gate that each request of a stream passes."""
        self._core = core
        self._call_gate = call_gate

    async def ServerLive(
        self, request: pb.ServerLiveRequest, context: Any
    ) -> pb.ServerLiveResponse:
        """Tells that the server is alive."""
        return pb.ServerLiveResponse(live=True)

    async def ServerReady(
        self, request: pb.ServerReadyRequest, context: Any
    ) -> pb.ServerReadyResponse:
        """Tells whether every model can be called."""
        return pb.ServerReadyResponse(ready=self._core.models.ready)

    async def ModelReady(
        self, request: pb.ModelReadyRequest, context: Any
    ) -> pb.ModelReadyResponse:
        """Tells whether one model can be called."""
        try:
            model = self._model(request.name, request.version)
        except ModelLoadingError:
            return pb.ModelReadyResponse(ready=False)
        return pb.ModelReadyResponse(ready=model.ready_workers > 0)

    async def ServerMetadata(
        self, request: pb.ServerMetadataRequest, context: Any
    ) -> pb.ServerMetadataResponse:
        """Describes the server."""
        return pb.ServerMetadataResponse(
            name="shaperouter", version=__version__, extensions=EXTENSIONS
        )

    async def ModelMetadata(
        self, request: pb.ModelMetadataRequest, context: Any
    ) -> pb.ModelMetadataResponse:
        """Describes one model's tensors."""
        return metadata(self._model(request.name, request.version))

    async def ModelConfig(
        self, request: pb.ModelConfigRequest, context: Any
    ) -> pb.ModelConfigResponse:
        """Describes how one model is batched and scheduled."""
        return pb.ModelConfigResponse(
            config=configuration(self._model(request.name, request.version))
        )

    async def ModelStatistics(
        self, request: pb.ModelStatisticsRequest, context: Any
    ) -> pb.ModelStatisticsResponse:
        """Counts and times the requests of models since the router started."""
        names = [self._model(request.name, request.version).name] if request.name else None
        return pb.ModelStatisticsResponse(
            model_stats=[
                statistics(name, self._core.totals[name])
                for name in names or self._core.models.names
            ]
        )

    async def RepositoryIndex(
        self, request: pb.RepositoryIndexRequest, context: Any
    ) -> pb.RepositoryIndexResponse:
        """Lists the models."""
        loaded = {model.name: model for model in self._core.models.loaded()}
        entries = [index_entry(name, loaded.get(name)) for name in self._core.models.names]
        return pb.RepositoryIndexResponse(
            models=[each for each in entries if each.state == "READY" or not request.ready]
        )

    async def RepositoryModelLoad(
        self, request: pb.RepositoryModelLoadRequest, context: Any
    ) -> pb.RepositoryModelLoadResponse:
        """Refuses to load a model."""
        raise FixedModelsError

    async def RepositoryModelUnload(
        self, request: pb.RepositoryModelUnloadRequest, context: Any
    ) -> pb.RepositoryModelUnloadResponse:
        """Refuses to unload a model."""
        raise FixedModelsError

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
        except ServiceError as error:
            failed = pb.ModelStreamInferResponse(error_message=str(error))
            failed.infer_response.id = request.id
            failed.infer_response.parameters[FINAL].bool_param = True
            yield failed

    async def _responses(
        self, request: pb.ModelInferRequest, *, may_stream: bool
    ) -> AsyncGenerator[pb.ModelInferResponse, None]:
        """The responses to a request: one, unless text streams as it is generated."""
        _check_version(request.model_name, request.model_version)
        if not self._generates(request):
            asked = await translated(request.ByteSize(), call_from_request, request)
            result = await self._core.inference.infer(asked, current_call())
            yield await translated(result.size, response_of, result, request)
            return
        generation = generation_from_request(request)
        if generation.streams and not may_stream:
            description = "must be false, as ModelInfer answers once: call ModelStreamInfer"
            raise InvalidRequestError(Violation(field=STREAM, description=description))
        events = self._core.generation.generate(generation.request, current_call())
        try:
            async with contextlib.aclosing(answers(generation, events)) as responses:
                async for response in responses:
                    yield response
        except InvalidRequestError as error:
            raise generation.in_callers_words(error) from None

    def _generates(self, request: pb.ModelInferRequest) -> bool:
        """Whether a request is to generate text; a model that is not yet loaded may do either."""
        model = self._core.models.find(request.model_name)
        if model is not None:
            return not answers_once(model)
        return TEXT in request.parameters or any(each.name == TEXT for each in request.inputs)

    def _model(self, name: str, version: str) -> ServedModel:
        _check_version(name, version)
        return self._core.models.get(name)


def _check_version(model: str, version: str) -> None:
    """Refuses any version but the only one."""
    if version not in ("", VERSION):
        raise UnknownVersionError(model, version)
