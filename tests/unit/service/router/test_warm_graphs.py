"""What operators ask of graphs through a router: WarmGraphs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import pytest
from grpc import StatusCode, aio

from harness.warming import DECODE, last, shape, states, warm
from shaperouter.v1 import graph_pb2
from shaperouter_service.fleet import link
from shaperouter_service.routing.rendezvous import named
from shaperouter_service.wire.signatures import signature_from_message

if TYPE_CHECKING:
    from harness.fake_worker import FakeWorker
    from harness.router import Play, Router

Until = Callable[[Callable[[], bool]], Awaitable[None]]
RetrySeconds = Callable[[aio.AioRpcError], float]

QUEUED, COMPILING = graph_pb2.GRAPH_STATE_QUEUED, graph_pb2.GRAPH_STATE_COMPILING
READY, FAILED = graph_pb2.GRAPH_STATE_READY, graph_pb2.GRAPH_STATE_FAILED


def lengths_wanted(worker: FakeWorker) -> list[list[int]]:
    return [[each.length for each in request.signatures] for request in worker.wanted]


def test_a_graph_is_told_of_until_it_is_ready(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.compiling_ends.clear()
        call = warm(router, shape(16))
        told = [(await call.read()).graphs[0].state]
        while told[-1] != COMPILING:
            told.append((await call.read()).graphs[0].state)
        worker.compiling_ends.set()
        told += states(await last(call))
        assert list(dict.fromkeys(told)) in ([QUEUED, COMPILING, READY], [COMPILING, READY])
        assert await call.code() is StatusCode.OK

    play(scenario)


def test_graphs_are_told_in_the_order_of_the_request(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        wanted = [
            shape(40),
            shape(16),
            shape(32, kind=DECODE, rows=2),
            shape(256, kind=DECODE, beams=4),
        ]
        graphs = await last(warm(router, *wanted))
        assert [graph.signature for graph in graphs] == wanted
        assert states(graphs) == [READY] * 4
        assert {graph.worker for graph in graphs} == {"worker-0"}

    play(scenario)


def test_a_graph_that_is_ready_already_is_told_at_once(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        await last(warm(router, shape(16)))
        call = warm(router, shape(16))
        assert states((await call.read()).graphs) == [READY]
        assert await call.read() is aio.EOF

    play(scenario)


def test_a_signature_asked_for_twice_is_told_twice_and_wanted_once(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        graphs = await last(warm(router, shape(16), shape(16)))
        assert states(graphs) == [READY, READY]
        assert lengths_wanted(worker) == [[16]]

    play(scenario)


def test_the_only_model_need_not_be_named(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        (graph,) = await last(warm(router, shape(16, model="")))
        assert (graph.signature, graph.state) == (shape(16), READY)

    play(scenario)


def test_each_signature_goes_to_the_worker_that_hashing_names(play: Play) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        wanted = [shape(length) for length in (16, 24, 40, 64)]
        graphs = await last(warm(router, *wanted))
        names = [worker.name for worker in workers]
        expected = [named(signature_from_message(signature), names) for signature in wanted]
        assert [graph.worker for graph in graphs] == expected
        for worker in workers:
            own = [
                each.length
                for each, name in zip(wanted, expected, strict=True)
                if name == worker.name
            ]
            assert lengths_wanted(worker) == ([own] if own else [])

    play(scenario, workers=3)


def test_workers_can_be_chosen(play: Play) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        graphs = await last(warm(router, shape(16), shape(24), workers=["worker-2", "worker-0"]))
        assert [(graph.signature.length, graph.worker) for graph in graphs] == [
            (16, "worker-2"),
            (16, "worker-0"),
            (24, "worker-2"),
            (24, "worker-0"),
        ]
        assert [lengths_wanted(worker) for worker in workers] == [[[16, 24]], [], [[16, 24]]]

    play(scenario, workers=3)


def test_all_workers_can_be_asked(play: Play) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        graphs = await last(warm(router, shape(16), all_workers=True))
        assert [graph.worker for graph in graphs] == ["worker-0", "worker-1"]
        assert states(graphs) == [READY, READY]

    play(scenario, workers=2)


def test_a_refused_graph_has_failed_for_the_reason_that_the_worker_gives(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.refusals[24] = "max_graphs is 8, and 8 are ready"
        graphs = await last(warm(router, shape(16), shape(24)))
        assert states(graphs) == [READY, FAILED]
        assert [graph.error for graph in graphs] == ["", "max_graphs is 8, and 8 are ready"]

    play(scenario)


def test_a_graph_that_cannot_be_compiled_has_failed(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.failures[24] = "out of memory"
        graphs = await last(warm(router, shape(16), shape(24)))
        assert states(graphs) == [READY, FAILED]
        assert graphs[1].error == "out of memory"

    play(scenario)


def test_a_graph_that_failed_before_is_waited_for_when_it_is_tried_again(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.failures[16] = "out of memory"
        assert states(await last(warm(router, shape(16)))) == [FAILED]
        worker.failures.clear()
        assert states(await last(warm(router, shape(16)))) == [READY]

    play(scenario)


def test_a_graph_that_failed_and_is_not_tried_yet_has_failed(play: Play, until: Until) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        failed = worker.graph(shape(16))
        failed.state, failed.error, failed.retry_seconds = FAILED, "out of memory", 30.0
        worker.graphs = [failed]
        await worker.change()
        await until(lambda: router.metric("graphs", state="failed") == 1)
        worker.accepts_compile_requests = False
        (graph,) = await last(warm(router, shape(16)))
        assert (graph.state, graph.error) == (FAILED, "out of memory")

    play(scenario)


def test_graphs_of_a_worker_that_is_lost_have_failed(play: Play) -> None:
    async def scenario(router: Router, first: FakeWorker, second: FakeWorker) -> None:
        first.compiling_ends.clear()
        call = warm(router, shape(16), all_workers=True)
        await call.read()
        await first.kill()
        graphs = await last(call)
        assert states(graphs) == [FAILED, READY]
        assert graphs[0].error == "worker-0 was lost"

    play(scenario, workers=2)


def test_graphs_of_a_worker_that_is_lost_and_back_have_failed(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.compiling_ends.clear()
        call = warm(router, shape(16))
        await call.read()
        await worker.kill()
        await worker.start()
        (graph,) = await last(call)
        assert (graph.state, graph.error) == (FAILED, "worker-0 was lost")

    play(scenario)


def test_a_worker_that_cannot_be_asked_is_the_reason(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.before_compile_request = RuntimeError("a defect")
        (graph,) = await last(warm(router, shape(16)))
        assert graph.state == FAILED
        assert "internal error" in graph.error

    play(scenario)


def test_a_worker_that_does_not_answer_counts_as_lost(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        monkeypatch.setattr(link, "ANSWER_TIMEOUT", 0.1)
        worker.before_compile_request = worker.hold
        (graph,) = await last(warm(router, shape(16)))
        assert (graph.state, graph.error) == (FAILED, "worker-0 was lost")
        worker.released.set()

    play(scenario)


def test_wishes_reach_the_workers_though_the_caller_has_gone(play: Play, until: Until) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.before_compile_request = worker.hold
        call = warm(router, shape(16))
        await until(lambda: len(worker.wanted) == 1)
        call.cancel()
        worker.released.set()
        await until(lambda: router.metric("graphs", state="ready") == 1)

    play(scenario)


def test_graphs_go_on_when_nobody_waits_for_them(play: Play, until: Until) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.compiling_ends.clear()
        call = warm(router, shape(16))
        await call.read()
        call.cancel()
        worker.compiling_ends.set()
        await until(lambda: router.metric("graphs", state="ready") == 1)

    play(scenario)


def test_a_warming_ends_as_soon_as_the_service_stops(
    play: Play, retry_seconds: RetrySeconds
) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.compiling_ends.clear()
        call = warm(router, shape(16))
        await call.read()
        router.stop.set()
        error = await router.error(call)
        assert error.code() is StatusCode.UNAVAILABLE
        assert "stopped" in str(error.details())
        assert retry_seconds(error) > 0

    play(scenario, grace=600.0)
