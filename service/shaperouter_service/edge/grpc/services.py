"""The public services over gRPC: their limits, and adding them to a server."""

from grpc import aio
from grpc_health.v1 import health as grpc_health
from grpc_reflection.v1alpha import reflection

from shaperouter.v1 import (
    generation_pb2,
    generation_pb2_grpc,
    graph_pb2,
    graph_pb2_grpc,
    model_pb2,
    model_pb2_grpc,
    transcription_pb2,
    transcription_pb2_grpc,
)
from shaperouter_service.edge.grpc.generation import GenerationServicer
from shaperouter_service.edge.grpc.graphs import GraphServicer
from shaperouter_service.edge.grpc.models import ModelServicer
from shaperouter_service.edge.grpc.transcription import TranscriptionServicer
from shaperouter_service.generation.limits import MAX_TEXT_REQUEST_BYTES
from shaperouter_service.serving.core import Core

# Services whose calls a stopping server finishes; it answers those of the others at once.
WORK = [
    generation_pb2.DESCRIPTOR.services_by_name["GenerationService"],
    transcription_pb2.DESCRIPTOR.services_by_name["TranscriptionService"],
]
SERVICES = [
    *WORK,
    model_pb2.DESCRIPTOR.services_by_name["ModelService"],
    graph_pb2.DESCRIPTOR.services_by_name["GraphService"],
]
# Recordings are large; nothing else is.
MAX_BYTES = {
    service.full_name: MAX_TEXT_REQUEST_BYTES
    for service in SERVICES
    if service.name != "TranscriptionService"
}


def add_services(server: aio.Server, core: Core) -> None:
    """Adds the public services, and their reflection, to a server."""
    generation_pb2_grpc.add_GenerationServiceServicer_to_server(
        GenerationServicer(core.generation), server
    )
    transcription_pb2_grpc.add_TranscriptionServiceServicer_to_server(
        TranscriptionServicer(core.transcription), server
    )
    model_pb2_grpc.add_ModelServiceServicer_to_server(ModelServicer(core.models), server)
    graph_pb2_grpc.add_GraphServiceServicer_to_server(GraphServicer(core.graphs), server)
    names = [service.full_name for service in SERVICES]
    names += [grpc_health.SERVICE_NAME, reflection.SERVICE_NAME]
    reflection.enable_server_reflection(names, server)
