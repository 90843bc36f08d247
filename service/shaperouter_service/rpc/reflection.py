"""Server reflection for services whose definitions are in several pools."""

from collections.abc import Sequence

from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from grpc import aio
from grpc_reflection.v1alpha import reflection, reflection_pb2

from shaperouter_service.rpc.definitions import files_of


def add_reflection(server: aio.Server, services: Sequence[ServiceDescriptor]) -> None:
    """Adds reflection to a server, of these services and of itself."""
    shown = [
        *services,
        reflection_pb2.DESCRIPTOR.services_by_name["ServerReflection"],
    ]
    pool = DescriptorPool()
    for service in shown:
        for file in files_of(service.file):
            pool.Add(file)
    reflection.enable_server_reflection([service.full_name for service in shown], server, pool)
