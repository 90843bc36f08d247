"""What operators see of graphs through a router: WatchGraphs."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from grpc import StatusCode, aio

from shaperouter.v1 import graph_pb2

if TYPE_CHECKING:
    from harness.fake_worker import FakeWorker
    from harness.router import Play, Router


def watch(router: Router, **fields: Any) -> Any:
    return router.graphs.WatchGraphs(graph_pb2.WatchGraphsRequest(**fields))


def test_a_watcher_is_told_at_once_and_after_each_change(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        call = watch(router)
        assert list((await call.read()).graphs) == []
        worker.graphs = [worker.graph(worker.signature(16))]
        await worker.change()
        assert list((await call.read()).graphs) == worker.graphs
        call.cancel()

    play(scenario)


def test_a_watcher_is_told_of_cold_signatures_and_one_model_on_request(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        call = watch(router, model="small", include_cold=True)
        request = graph_pb2.ListGraphsRequest(model="small", include_cold=True)
        listed = await router.graphs.ListGraphs(request)
        assert listed.graphs
        assert (await call.read()).graphs == listed.graphs
        call.cancel()

    play(scenario, models=("large", "small"))


def test_many_changes_are_told_a_few_times_a_second(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.graphs = [worker.graph(worker.signature(16))]
        told = 0

        async def count() -> None:
            nonlocal told
            async for response in watch(router):
                told += 1
                if response.graphs and response.graphs[0].traces == 1000:
                    return

        started = time.monotonic()
        counting = asyncio.create_task(count())
        for traces in range(1001):
            worker.graphs[0].traces = traces
            await worker.change()
        await counting
        assert told <= (time.monotonic() - started) / 0.2 + 2

    play(scenario)


def test_watching_an_unknown_model_is_not_found(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        error = await router.error(watch(router, model="gpt3"))
        assert error.code() is StatusCode.NOT_FOUND

    play(scenario)


def test_a_watch_ends_well_as_soon_as_the_service_stops(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        call = watch(router)
        await call.read()
        router.stop.set()
        while await call.read() is not aio.EOF:
            pass
        assert await call.code() is StatusCode.OK

    # Far longer than a test may take: the watch must not use it up.
    play(scenario, grace=600.0)
