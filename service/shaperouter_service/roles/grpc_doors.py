"""The doors on the gRPC port of a router."""

from collections.abc import Mapping, Sequence

from google.protobuf.descriptor import ServiceDescriptor
from grpc import aio
from grpc_health.v1 import health_pb2

from shaperouter_service.edge.grpc.services import DOOR as SHAPEROUTER
from shaperouter_service.edge.grpc_calls import CallGate
from shaperouter_service.edge.inference.grpc.services import DOOR as INFERENCE
from shaperouter_service.edge.tfserving.services import DOOR as TFSERVING
from shaperouter_service.rpc.reflection import add_reflection
from shaperouter_service.serving.core import Core
from shaperouter_service.serving.gate import Gate

_DOORS = (SHAPEROUTER, INFERENCE, TFSERVING)
_HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"]


class GrpcDoors:
    """All doors on the gRPC port.

    Attributes:
        services: Their services.
        max_bytes: Maximum bytes of a request, by the full name of its service; see `GrpcDoor`.
        call_gate: Makes their calls pass the gate.
    """

    def __init__(self, gate: Gate) -> None:
        """Takes the gate that all calls pass."""
        self.services: Sequence[ServiceDescriptor] = [
            service for door in _DOORS for service in door.services
        ]
        self.max_bytes: Mapping[str, int] = {
            name: limit for door in _DOORS for name, limit in door.max_bytes.items()
        }
        self.call_gate = CallGate(
            gate,
            work=frozenset[str]().union(*(door.work for door in _DOORS)),
            for_operators=frozenset[str]().union(*(door.for_operators for door in _DOORS)),
            for_probes=frozenset[str]().union(*(door.for_probes for door in _DOORS)),
        )

    def add_to(self, server: aio.Server, core: Core) -> None:
        """Adds all services, and their reflection, to a server that also serves health."""
        for door in _DOORS:
            door.add(server, core, self.call_gate)
        add_reflection(server, [*self.services, _HEALTH])
