"""The minimum cost of a router in Python: a proxy that forwards the bytes of messages."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
from grpc import aio

from .answers import STREAM, UNARY


class Proxy(grpc.GenericRpcHandler):
    """Forwards the calls of GenerationService, each as a call of its own."""

    def __init__(self, channel: aio.Channel) -> None:
        """Forwards over a channel."""
        self._unary_call = channel.unary_unary(UNARY)
        self._stream_call = channel.unary_stream(STREAM)
        self._unary_handler = grpc.unary_unary_rpc_method_handler(self._unary)
        self._stream_handler = grpc.unary_stream_rpc_method_handler(self._stream)

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        """The handler of a method."""
        return self._stream_handler if details.method == STREAM else self._unary_handler

    async def _unary(self, request: bytes, context: Any) -> Any:
        return await self._unary_call(request)

    async def _stream(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        async for message in self._stream_call(request):
            yield message


def serve_proxy(address: str, worker: str) -> None:
    """Runs the proxy's process."""
    asyncio.run(_serve(address, worker))


async def _serve(address: str, worker: str) -> None:
    async with aio.insecure_channel(worker) as channel:
        server = aio.server()
        server.add_generic_rpc_handlers([Proxy(channel)])
        server.add_insecure_port(address)
        await server.start()
        await server.wait_for_termination()
