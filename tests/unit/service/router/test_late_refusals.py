"""A graph that a worker takes up, and refuses when its turn comes: it has no room any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grpc import aio

from shaperouter.v1 import graph_pb2, signature_pb2

if TYPE_CHECKING:
    from harness.fake_worker import FakeWorker
    from harness.router import Play, Router

SHAPE = signature_pb2.Signature(
    model="tiny", kind=signature_pb2.GRAPH_KIND_PREFILL, rows=1, length=16, beams=1
)
REASON = "the worker's budget is spent"


async def warmed(router: Router) -> graph_pb2.Graph:
    """How the warming of one graph ended."""
    call = router.graphs.WarmGraphs(graph_pb2.WarmGraphsRequest(signatures=[SHAPE]))
    while (response := await call.read()) is not aio.EOF:
        (graph,) = response.graphs
    return graph


def test_who_waits_for_it_is_told_that_it_has_failed_and_why(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.late_refusals[SHAPE.length] = REASON
        graph = await warmed(router)
        assert (graph.state, graph.error) == (graph_pb2.GRAPH_STATE_FAILED, REASON)

    play(scenario)


async def refuse(router: Router, worker: FakeWorker) -> None:
    """Leaves the graph as one that was refused some time ago, and the router knowing of it."""
    refused = worker.graph(SHAPE)
    refused.state, refused.error = graph_pb2.GRAPH_STATE_COLD, "of old"
    refused.state_seconds = 30.0
    worker.graphs = [refused]
    await worker.change()
    request = graph_pb2.WatchGraphsRequest(include_cold=True)
    async for told in router.graphs.WatchGraphs(request):
        if any(graph.error for graph in told.graphs):
            return


def test_one_that_was_refused_before_is_waited_for_when_it_is_tried_again(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        await refuse(router, worker)
        assert (await warmed(router)).state == graph_pb2.GRAPH_STATE_READY

    play(scenario)


def test_one_that_is_refused_again_has_failed_for_the_new_reason(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        await refuse(router, worker)
        worker.late_refusals[SHAPE.length] = REASON
        graph = await warmed(router)
        assert (graph.state, graph.error) == (graph_pb2.GRAPH_STATE_FAILED, REASON)

    play(scenario)
