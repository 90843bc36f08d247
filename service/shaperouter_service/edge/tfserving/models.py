"""ModelService of TensorFlow Serving."""

from typing import Any

from shaperouter_service.edge.tfserving.model_spec import VERSION, model_name
from shaperouter_service.edge.tfserving.stubs.tensorflow_serving.apis import (
    get_model_status_pb2,
    model_service_pb2_grpc,
    status_pb2,
)
from shaperouter_service.errors import ModelLoadingError
from shaperouter_service.serving.models import Models

Status = get_model_status_pb2.ModelVersionStatus


class ModelServicer(model_service_pb2_grpc.ModelServiceServicer):
    """See model_service.proto."""

    def __init__(self, models: Models) -> None:
        """Takes the core's models."""
        self._models = models

    async def GetModelStatus(  # noqa: N802 (gRPC's name)
        self, request: get_model_status_pb2.GetModelStatusRequest, context: Any
    ) -> get_model_status_pb2.GetModelStatusResponse:
        """Tells whether a model can be called."""
        try:
            ready = self._models.get(model_name(request.model_spec)).ready_workers > 0
        except ModelLoadingError:
            ready = False
        status = Status(
            version=VERSION,
            state=Status.AVAILABLE if ready else Status.LOADING,
            status=status_pb2.StatusProto(),
        )
        return get_model_status_pb2.GetModelStatusResponse(model_version_status=[status])
