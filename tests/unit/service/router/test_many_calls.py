"""More calls than a router handles at once: each is answered, or refused with a time to retry."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from google.protobuf.message import Message
from google.rpc import error_details_pb2
from grpc import aio
from grpc_health.v1 import health_pb2

from harness.router import wait_until
from harness.waiting import TIMEOUT
from shaperouter.v1 import generation_pb2, generation_pb2_grpc
from shaperouter_service.auth import CallLimit
from shaperouter_service.errors import TooManyCallsError

if TYPE_CHECKING:
    from harness.fake_worker import FakeWorker
    from harness.router import Play, Router

Detail = Callable[[aio.AioRpcError, type[Message]], Any]

# More than the thousand calls that gRPC lets wait by default.
CALLS, CHANNELS, PLACES = 2000, 4, 50

REQUEST = generation_pb2.GenerateRequest(token_ids=generation_pb2.TokenIds(ids=[1]))
# Else all channels to an address share a connection.
OWN_CONNECTION = [("grpc.use_local_subchannel_pool", 1)]


def test_each_of_many_calls_is_answered_or_told_when_to_retry(
    play: Play, detail: Detail, free_address: str
) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        outcomes: Counter[str] = Counter()
        worker.script.insert(0, worker.hold)

        async def call(stub: generation_pb2_grpc.GenerationServiceStub) -> None:
            try:
                await stub.Generate(REQUEST, timeout=6 * TIMEOUT)
            except aio.AioRpcError as error:
                retry = detail(error, error_details_pb2.RetryInfo).retry_delay.seconds == 1
                outcomes["refused" if retry else str(error)] += 1
            else:
                outcomes["answered"] += 1

        async with contextlib.AsyncExitStack() as stack:
            channels = [
                await stack.enter_async_context(aio.insecure_channel(free_address, OWN_CONNECTION))
                for _ in range(CHANNELS)
            ]
            stubs = [generation_pb2_grpc.GenerationServiceStub(channel) for channel in channels]
            calls = [asyncio.create_task(call(stubs[index % CHANNELS])) for index in range(CALLS)]
            # A single client, which may use half of the places.
            await wait_until(lambda: outcomes["refused"] == CALLS - PLACES // 2)
            assert await router.health_of("readiness") == health_pb2.HealthCheckResponse.SERVING
            assert worker.running == PLACES // 2
            worker.released.set()
            await asyncio.gather(*calls)
        assert outcomes == {"answered": PLACES // 2, "refused": CALLS - PLACES // 2}
        refused = router.metric("refused_calls_total", reason="TOO_MANY_CALLS")
        assert refused == outcomes["refused"]

    play(scenario, listen=free_address, settings={"max_calls": PLACES}, patience=6 * TIMEOUT)


def test_a_client_at_its_limit_leaves_room_for_another(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.script.insert(0, worker.hold)
        one, other = ((("x-client-id", name),) for name in ("one", "other"))
        held = [router.generation.Generate(REQUEST, metadata=one) for _ in range(2)]
        await wait_until(lambda: worker.running == 2)
        error = await router.error(router.generation.Generate(REQUEST, metadata=one))
        assert error.details() == (
            "too many calls at once: limit 2 calls of one client; send the request again later"
        )
        held.append(router.generation.Generate(REQUEST, metadata=other))
        await wait_until(lambda: worker.running == 3)
        worker.released.set()
        await asyncio.gather(*held)
        await router.generation.Generate(REQUEST, metadata=one)

    play(scenario, settings={"max_calls": 4})


def test_a_call_over_the_limit_is_not_parsed(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.script.insert(0, worker.hold)
        held = asyncio.ensure_future(router.generate())
        await wait_until(lambda: worker.running == 1)
        generate: Any = router.channel.unary_unary("/shaperouter.v1.GenerationService/Generate")
        error = await router.error(generate(b"\xff no message", timeout=TIMEOUT))
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        worker.released.set()
        await held

    play(scenario, settings={"max_calls": 1})


def test_the_limit_is_shared_between_current_clients() -> None:
    limit = CallLimit(6)
    with contextlib.ExitStack() as first:
        for _ in range(3):
            first.enter_context(limit.admitted("a"))
        with pytest.raises(TooManyCallsError, match="limit 3 calls of one client"):
            first.enter_context(limit.admitted("a"))
        with contextlib.ExitStack() as second:
            for _ in range(2):
                second.enter_context(limit.admitted("b"))
            with pytest.raises(TooManyCallsError, match="limit 2 calls of one client"):
                second.enter_context(limit.admitted("b"))
            second.enter_context(limit.admitted("c"))
            with pytest.raises(TooManyCallsError, match=r"limit 6 calls;"):
                second.enter_context(limit.admitted("d"))
    with limit.admitted("b"):
        pass
