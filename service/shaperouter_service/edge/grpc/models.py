"""ModelService: the served models and their limits, over gRPC."""

from typing import Any

from shaperouter.v1 import model_pb2, model_pb2_grpc
from shaperouter_service.edge.grpc_calls import current_call
from shaperouter_service.routing.deployments import Target
from shaperouter_service.serving.models import Models
from shaperouter_service.serving.repository import Repository
from shaperouter_service.wire.models import model_to_message


class ModelServicer(model_pb2_grpc.ModelServiceServicer):
    """See model.proto."""

    def __init__(self, models: Models, repository: Repository) -> None:
        """Takes the core's models, and what loads and unloads them."""
        self._models = models
        self._repository = repository

    async def ListModels(  # noqa: N802 (gRPC's name)
        self, request: model_pb2.ListModelsRequest, context: Any
    ) -> model_pb2.ListModelsResponse:
        """Lists every model that a worker has loaded."""
        return model_pb2.ListModelsResponse(models=map(model_to_message, self._models.loaded()))

    async def GetModel(  # noqa: N802 (gRPC's name)
        self, request: model_pb2.GetModelRequest, context: Any
    ) -> model_pb2.GetModelResponse:
        """Describes one model."""
        model = self._models.get(request.name)
        return model_pb2.GetModelResponse(model=model_to_message(model))

    async def LoadModel(  # noqa: N802 (gRPC's name)
        self, request: model_pb2.LoadModelRequest, context: Any
    ) -> model_pb2.LoadModelResponse:
        """Loads a model, or a new revision of one."""
        share = request.share if request.HasField("share") else 1.0
        model = await self._repository.load(
            request.name, request.location, current_call(), share=share
        )
        return model_pb2.LoadModelResponse(model=model_to_message(model))

    async def UnloadModel(  # noqa: N802 (gRPC's name)
        self, request: model_pb2.UnloadModelRequest, context: Any
    ) -> model_pb2.UnloadModelResponse:
        """Serves a model no more, or removes an alias."""
        await self._repository.unload(request.name)
        return model_pb2.UnloadModelResponse()

    async def SetAlias(  # noqa: N802 (gRPC's name)
        self, request: model_pb2.SetAliasRequest, context: Any
    ) -> model_pb2.SetAliasResponse:
        """Sets where the requests to an alias go."""
        targets = [Target(model=each.model, share=each.share) for each in request.targets]
        await self._repository.set_alias(request.name, targets)
        return model_pb2.SetAliasResponse()
