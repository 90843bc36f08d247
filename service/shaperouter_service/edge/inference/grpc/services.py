"""The gRPC door of the Open Inference Protocol: its service."""

from grpc import aio

from shaperouter_service.edge.grpc_calls import CallGate
from shaperouter_service.edge.grpc_door import GrpcDoor, paths
from shaperouter_service.edge.inference.grpc.servicer import InferenceServicer
from shaperouter_service.edge.inference.protocol import OpenInference
from shaperouter_service.edge.inference.stubs import grpc_service_pb2, grpc_service_pb2_grpc
from shaperouter_service.serving.core import Core

_SERVICE = grpc_service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]


def _add(server: aio.Server, core: Core, call_gate: CallGate) -> None:
    grpc_service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(
        InferenceServicer(OpenInference(core, call_gate.gate), call_gate), server
    )


DOOR = GrpcDoor(
    services=[_SERVICE],
    # A stream is as long as its caller likes: its requests are work, not the stream itself.
    work=paths(_SERVICE, "ModelInfer"),
    for_operators=paths(_SERVICE, "RepositoryModelLoad", "RepositoryModelUnload"),
    for_probes=paths(_SERVICE, "ServerLive", "ServerReady"),
    add=_add,
)
