"""ModelService: the served models and their limits, over gRPC."""

from typing import Any

from shaperouter.v1 import model_pb2, model_pb2_grpc
from shaperouter_service.serving.models import Models
from shaperouter_service.wire.models import model_to_message


class ModelServicer(model_pb2_grpc.ModelServiceServicer):
    """See model.proto."""

    def __init__(self, models: Models) -> None:
        """Takes the core's models."""
        self._models = models

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
