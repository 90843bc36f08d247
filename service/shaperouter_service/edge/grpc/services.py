"""The door of `shaperouter.v1`: its services and their limits."""

from grpc import aio

from shaperouter.v1 import (
    generation_pb2,
    generation_pb2_grpc,
    graph_pb2,
    graph_pb2_grpc,
    inference_pb2,
    inference_pb2_grpc,
    model_pb2,
    model_pb2_grpc,
    transcription_pb2,
    transcription_pb2_grpc,
)
from shaperouter_service.edge.grpc.generation import GenerationServicer
from shaperouter_service.edge.grpc.graphs import GraphServicer
from shaperouter_service.edge.grpc.inference import InferenceServicer
from shaperouter_service.edge.grpc.models import ModelServicer
from shaperouter_service.edge.grpc.transcription import TranscriptionServicer
from shaperouter_service.edge.grpc_calls import CallGate
from shaperouter_service.edge.grpc_door import GrpcDoor, paths
from shaperouter_service.generation.limits import MAX_TEXT_REQUEST_BYTES
from shaperouter_service.serving.core import Core

_GENERATION = generation_pb2.DESCRIPTOR.services_by_name["GenerationService"]
_TRANSCRIPTION = transcription_pb2.DESCRIPTOR.services_by_name["TranscriptionService"]
_INFERENCE = inference_pb2.DESCRIPTOR.services_by_name["InferenceService"]
_MODELS = model_pb2.DESCRIPTOR.services_by_name["ModelService"]
_GRAPHS = graph_pb2.DESCRIPTOR.services_by_name["GraphService"]


def _add(server: aio.Server, core: Core, _: CallGate) -> None:
    generation_pb2_grpc.add_GenerationServiceServicer_to_server(
        GenerationServicer(core.generation), server
    )
    transcription_pb2_grpc.add_TranscriptionServiceServicer_to_server(
        TranscriptionServicer(core.transcription), server
    )
    inference_pb2_grpc.add_InferenceServiceServicer_to_server(
        InferenceServicer(core.inference), server
    )
    model_pb2_grpc.add_ModelServiceServicer_to_server(
        ModelServicer(core.models, core.repository), server
    )
    graph_pb2_grpc.add_GraphServiceServicer_to_server(GraphServicer(core.graphs), server)


DOOR = GrpcDoor(
    services=[_GENERATION, _TRANSCRIPTION, _INFERENCE, _MODELS, _GRAPHS],
    work=paths(_GENERATION) | paths(_TRANSCRIPTION) | paths(_INFERENCE),
    # They use memory and budgets that all clients share.
    for_operators=paths(_GRAPHS, "WarmGraphs")
    | paths(_MODELS, "LoadModel", "UnloadModel", "SetAlias"),
    # Recordings and tensors are large; nothing else is.
    max_bytes={
        service.full_name: MAX_TEXT_REQUEST_BYTES for service in (_GENERATION, _MODELS, _GRAPHS)
    },
    add=_add,
)
