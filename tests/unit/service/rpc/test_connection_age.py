"""Connections of callers are renewed, so that calls reach the current routers."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
from grpc import aio

from harness.waiting import TIMEOUT
from shaperouter_service.rpc.server import make_server


class Peers(grpc.GenericRpcHandler):
    """Tells each call its connection; a stream reports it again after it is released."""

    def __init__(self) -> None:
        self.released = asyncio.Event()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        if handler_call_details.method == "/stream":
            return grpc.unary_stream_rpc_method_handler(self.stream)
        return grpc.unary_unary_rpc_method_handler(self.once)

    async def once(self, _: bytes, context: Any) -> bytes:
        return bytes(context.peer().encode())

    async def stream(self, _: bytes, context: Any) -> AsyncIterator[bytes]:
        yield context.peer().encode()
        await self.released.wait()
        yield context.peer().encode()


def test_an_old_connection_finishes_its_calls_and_takes_no_new_ones() -> None:
    async def scenario() -> None:
        peers = Peers()
        server = make_server([], connection_age=0.1)
        server.add_generic_rpc_handlers([peers])
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            stream = channel.unary_stream("/stream")(b"", timeout=TIMEOUT)
            first = await stream.read()
            call = channel.unary_unary("/once")
            # Each of these is answered, whenever the connection is renewed.
            while await call(b"", timeout=TIMEOUT) == first:
                pass
            peers.released.set()
            assert await stream.read() == first
            assert await stream.read() is aio.EOF
        await server.stop(None)

    asyncio.run(asyncio.wait_for(scenario(), 3 * TIMEOUT))
