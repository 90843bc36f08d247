"""Watchers of health get every change and cannot delay each other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from grpc import StatusCode, aio
from grpc_health.v1 import health_pb2

from harness.raw_http2 import deaf_connection
from harness.router import wait_until
from harness.waiting import TIMEOUT
from shaperouter_service.rpc import health as health_module

if TYPE_CHECKING:
    from harness.fake_worker import FakeWorker
    from harness.router import Play, Router

WATCH = "/grpc.health.v1.Health/Watch"
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
SERVICE_UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


def watch(router: Router, service: str = "") -> Any:
    request = health_pb2.HealthCheckRequest(service=service)
    return router.health.Watch(request, timeout=TIMEOUT)


def test_a_watcher_that_reads_nothing_delays_neither_others_nor_the_stop(
    play: Play, sockets: Path
) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        async with deaf_connection(f"unix:{sockets / 'router'}") as deaf:
            deaf.call("/grpc.health.v1.Health/Watch")
            # A connection's calls are taken in order: once this one has begun, so has the other.
            deaf.call("/shaperouter.v1.ModelService/ListModels")
            labels = {
                "grpc_type": "unary",
                "grpc_service": "shaperouter.v1.ModelService",
                "grpc_method": "ListModels",
            }
            name = "grpc_server_started_total"
            await wait_until(lambda: router.registry.get_sample_value(name, labels) == 1)
            await worker.drain()
            await router.wait_for_health("", NOT_SERVING)
            router.stop.set()
            await wait_until(lambda: not (sockets / "router").exists())

    play(scenario)


def test_watchers_get_every_change(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        calls = [watch(router) for _ in range(20)]
        for call in calls:
            assert (await call.read()).status == SERVING
        for call in calls[::2]:
            call.cancel()
        await worker.drain()
        for call in calls[1::2]:
            assert (await call.read()).status == NOT_SERVING

    play(scenario)


def test_an_unknown_service_is_not_found_but_can_be_watched(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        call = watch(router, "nothing")
        assert (await call.read()).status == SERVICE_UNKNOWN
        call.cancel()
        request = health_pb2.HealthCheckRequest(service="nothing")
        error = await router.error(router.health.Check(request, timeout=TIMEOUT))
        assert error.code() is StatusCode.NOT_FOUND

    play(scenario)


def test_watchers_above_the_limit_are_refused(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_module, "MAX_WATCHES", 1)

    async def scenario(router: Router, _: FakeWorker) -> None:
        first = watch(router)
        assert (await first.read()).status == SERVING
        with pytest.raises(aio.AioRpcError) as error:
            await watch(router).read()
        assert error.value.code() is StatusCode.UNIMPLEMENTED
        assert "maximum of 1 watches" in str(error.value.details())
        first.cancel()

        async def watched() -> bool:
            try:
                return bool((await watch(router).read()).status == SERVING)
            except aio.AioRpcError:
                return False

        # The router learns of the end after the caller has left.
        while not await watched():
            pass

    play(scenario)
