"""What a failed call used is free at once, without Python's collector of reference cycles."""

import asyncio
import gc
import weakref
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from grpc import aio

from harness.router import wait_until
from shaperouter_service.errors import InvalidRequestError, Violation
from shaperouter_service.rpc.interceptor import ErrorInterceptor


class Recording:
    """Something that takes memory."""


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidRequestError(Violation(field="a", description="b")), "INVALID_ARGUMENT"),
        (ZeroDivisionError(), "INTERNAL"),
    ],
    ids=["refused", "broken"],
)
@pytest.mark.usefixtures("no_collector")
def test_a_failed_call_keeps_nothing(error: Exception, code: str) -> None:
    kept: list[weakref.ref[Recording]] = []

    async def fail(recording: Recording) -> None:
        async def inner() -> None:
            try:
                raise KeyError(recording)
            except KeyError:
                raise error from None

        await asyncio.create_task(inner())

    async def method(request: bytes, context: Any) -> bytes:
        recording = Recording()
        kept.append(weakref.ref(recording))
        await fail(recording)
        return b""

    async def scenario() -> None:
        server = aio.server(interceptors=[ErrorInterceptor()])
        handler = grpc.unary_unary_rpc_method_handler(method)
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("s", {"m": handler})])
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            with pytest.raises(aio.AioRpcError) as failure:
                await channel.unary_unary("/s/m")(b"")
        assert failure.value.code().name == code
        await wait_until(lambda: kept[0]() is None)
        await server.stop(None)

    asyncio.run(scenario())
