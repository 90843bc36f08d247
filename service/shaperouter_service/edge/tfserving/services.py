"""The door of TensorFlow Serving: its services."""

from grpc import aio

from shaperouter_service.edge.grpc_calls import CallGate
from shaperouter_service.edge.grpc_door import GrpcDoor, paths
from shaperouter_service.edge.tfserving.models import ModelServicer
from shaperouter_service.edge.tfserving.prediction import PredictionServicer
from shaperouter_service.edge.tfserving.stubs.tensorflow_serving.apis import (
    model_service_pb2,
    model_service_pb2_grpc,
    prediction_service_pb2,
    prediction_service_pb2_grpc,
)
from shaperouter_service.serving.core import Core

_PREDICTIONS = prediction_service_pb2.DESCRIPTOR.services_by_name["PredictionService"]
_MODELS = model_service_pb2.DESCRIPTOR.services_by_name["ModelService"]


def _add(server: aio.Server, core: Core, _: CallGate) -> None:
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
        PredictionServicer(core), server
    )
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(ModelServicer(core.models), server)


DOOR = GrpcDoor(
    services=[_PREDICTIONS, _MODELS],
    work=paths(_PREDICTIONS, "Predict", "Classify", "Regress"),
    add=_add,
)
