"""Processes of an earlier version, which drop the fields of messages that they do not know."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from grpc import aio

RELEASED = Path(__file__).parents[2] / "protos" / "released"
VERSIONS = sorted(
    (path.stem for path in RELEASED.glob("*.binpb")),
    key=lambda version: [int(part) for part in version.split(".")],
)


@functools.cache
def definitions(version: str) -> descriptor_pb2.FileDescriptorSet:
    """The definitions of `shaperouter.v1` in a version, with their imports."""
    return descriptor_pb2.FileDescriptorSet.FromString((RELEASED / f"{version}.binpb").read_bytes())


@functools.cache
def pool(version: str) -> DescriptorPool:
    """The definitions of a version, apart from those of this process."""
    found = DescriptorPool()
    for file in definitions(version).file:
        found.Add(file)
    return found


class Older(aio.ServerInterceptor):
    """Makes the other side of a server one of an older version.

    All messages of `shaperouter.v1` pass through the definitions of that version, which drops the
    fields that it does not know, in both directions. So a server that passes its tests behind this
    serves older callers, and callers that do so have an older server.
    """

    def __init__(self, version: str) -> None:
        self._pool = pool(version)
        self.messages = 0  # that passed through

    async def intercept_service(
        self,
        continuation: Callable[[Any], Awaitable[grpc.RpcMethodHandler]],
        handler_call_details: Any,
    ) -> Any:
        handler: Any = await continuation(handler_call_details)
        service, _, name = handler_call_details.method.lstrip("/").partition("/")
        if not service.startswith("shaperouter.v1."):
            return handler
        method = self._pool.FindServiceByName(service).methods_by_name[name]
        # The router parses after it has checked who calls.
        parse = handler.request_deserializer or (lambda data: data)
        return handler._replace(
            request_deserializer=lambda data: parse(self._older(method.input_type, data)),
            response_serializer=lambda message: self._older(
                method.output_type, handler.response_serializer(message)
            ),
        )

    def _older(self, kind: Any, data: bytes) -> bytes:
        self.messages += 1
        message = message_factory.GetMessageClass(kind).FromString(data)
        # Otherwise Protobuf passes unknown fields on, though no code of that version reads them.
        message.DiscardUnknownFields()
        return bytes(message.SerializeToString())
