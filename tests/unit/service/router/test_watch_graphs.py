"""What operators see of graphs through a router: WatchGraphs."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest
from grpc import StatusCode, aio

from harness.waiting import TIMEOUT
from shaperouter.v1 import graph_pb2
from shaperouter_service.serving.graphs import graphs as graphs_module

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


def test_what_many_watch_is_listed_once_a_change(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = 0
    list_graphs = graphs_module.Graphs.listed

    def count(*arguments: Any, **options: Any) -> Any:
        nonlocal listed
        listed += 1
        return list_graphs(*arguments, **options)

    monkeypatch.setattr(graphs_module.Graphs, "listed", count)

    async def scenario(router: Router, worker: FakeWorker) -> None:
        calls = [watch(router) for _ in range(30)]
        for call in calls:
            await call.read()
        worker.graphs = [worker.graph(worker.signature(16))]
        await worker.change()
        for call in calls:
            while not (await call.read()).graphs:
                pass
        assert listed <= worker.told
        for call in calls:
            call.cancel()

    play(scenario)


def test_many_watchers_are_told_less_often_each(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    watchers, updates_per_second = 10, 20.0
    monkeypatch.setattr(graphs_module, "MAX_UPDATES_PER_SECOND", updates_per_second)

    async def scenario(router: Router, worker: FakeWorker) -> None:
        started = time.monotonic()
        calls = [watch(router) for _ in range(watchers)]
        for call in calls:
            await call.read()
        reading = [asyncio.create_task(call.read()) for call in calls]
        while not all(task.done() for task in reading):
            await worker.change()
            await asyncio.sleep(0.01)
        # Each has waited for its part of the updates, less the time in which all began.
        assert time.monotonic() - started > watchers / updates_per_second / 2
        for call in calls:
            call.cancel()

    play(scenario)


@pytest.mark.parametrize("method", ["WatchGraphs", "WarmGraphs"])
def test_a_client_with_too_many_streams_is_refused_and_others_are_not(
    play: Play, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setattr(graphs_module, "MAX_STREAMS", 4)

    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.compiling_ends.clear()
        request = {
            "WatchGraphs": graph_pb2.WatchGraphsRequest(),
            "WarmGraphs": graph_pb2.WarmGraphsRequest(signatures=[worker.signature(16)]),
        }[method]

        def follow(client: str) -> Any:
            metadata = (("x-client-id", client),)
            return getattr(router.graphs, method)(request, metadata=metadata, timeout=TIMEOUT)

        held = [follow("one"), follow("one")]
        for call in held:
            await call.read()
        error = await router.error(follow("one"))
        assert error.code() is StatusCode.RESOURCE_EXHAUSTED
        assert "limit 2 calls of one client" in error.details()
        other = follow("other")
        assert await other.read() is not aio.EOF
        worker.compiling_ends.set()

    play(scenario)
