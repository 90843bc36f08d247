"""The interface of a door on the gRPC port."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from google.protobuf.descriptor import ServiceDescriptor
from grpc import aio

from shaperouter_service.edge.grpc_calls import CallGate
from shaperouter_service.serving.core import Core


@dataclass(frozen=True, kw_only=True)
class GrpcDoor:
    """One protocol's services on the gRPC port.

    Attributes:
        services: Its services.
        work: Methods whose calls count against limits, and which a stopping server finishes; it
            answers those of the others at once.
        for_operators: Methods that only operators may call.
        for_probes: Methods that need no token: they tell only whether the service is ready.
        max_bytes: Maximum bytes of a request, by the full name of its service, where that is less
            than what the server reads.
        add: Adds the services to a server.
    """

    services: Sequence[ServiceDescriptor]
    work: frozenset[str] = frozenset()
    for_operators: frozenset[str] = frozenset()
    for_probes: frozenset[str] = frozenset()
    max_bytes: Mapping[str, int] = field(default_factory=dict)
    add: Callable[[aio.Server, Core, CallGate], None]


def paths(service: ServiceDescriptor, *methods: str) -> frozenset[str]:
    """The paths of a service's methods, `/package.Service/Method`: of these, or of all."""
    names = methods or [method.name for method in service.methods]
    return frozenset(f"/{service.full_name}/{name}" for name in names)
