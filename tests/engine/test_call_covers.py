"""A call waits for a graph that will be made, whatever takes up the budget."""

import dataclasses
import math

from harness.graph_table import Table
from harness.waiting import wait_until
from shaperouter_service.errors import GraphFailedError, GraphRefusedError
from shaperouter_service.graphs import Graph, GraphState
from shaperouter_service.routing.call_ladders import AxisLadder, CallLadders
from shaperouter_service.routing.ladder import Ladder
from shaperouter_service.routing.signatures import GraphKind, Signature
from shaperouter_service.tensors.checking import Sizes
from shaperouter_service.worker.call import Call
from shaperouter_service.worker.call_covers import CallCovers

LADDERS = CallLadders(
    rows=Ladder((1, 8)), axes=(AxisLadder(name="length", ladder=Ladder((16, 512))),)
)
EXACT = CallLadders(rows=Ladder((1, 8)), axes=(AxisLadder(name="width", ladder=None),))


def _signature(rows: int, length: int) -> Signature:
    return Signature(model="m", kind=GraphKind.CALL, beams=1, rows=rows, length=length)


FIRST, TIGHT = _signature(1, 512), _signature(8, 16)


def _call(rows: int, length: int) -> Call:
    return Call(
        request_id="test",
        client="test",
        inputs={},
        sizes=Sizes(rows=rows, axes=(length,)),
        outputs=(),
        emit=lambda _: None,
        arrived=0.0,
    )


def _fail(fake: Table, graph: Graph) -> None:
    """Lets a graph fail, and not be tried again however long the test takes."""
    fake.programs[graph.signature].go_on.set()
    wait_until(lambda: graph.state is GraphState.FAILED)
    graph.retry_at = math.inf


def _waited_for(fake: Table) -> Graph:
    missing = CallCovers("m", LADDERS, fake.table).missing(_call(8, 10))
    assert isinstance(missing, Graph)
    return missing


def test_a_call_waits_for_its_tight_cover() -> None:
    fake = Table(first=[FIRST])
    assert _waited_for(fake).signature == TIGHT
    assert fake.table.graph(FIRST).state.on_the_way


def test_a_call_waits_for_the_first_graph_if_others_take_up_the_budget() -> None:
    """As in a worker that starts, and has queued all graphs that recorded traffic asks for."""
    fake = Table(max_graphs=2, first=[FIRST])
    fake.table.request_compile(_signature(8, 512), urgent=False)
    assert _waited_for(fake).signature == FIRST
    assert fake.table.graph(TIGHT).state is GraphState.COLD


def test_a_call_waits_for_the_first_graph_if_its_tight_cover_failed() -> None:
    fake = Table("no registers", first=[FIRST])
    tight = _waited_for(fake)
    _fail(fake, tight)
    assert _waited_for(fake).signature == FIRST


def test_a_call_fails_once_no_graph_can_serve_it() -> None:
    fake = Table("no registers", first=[FIRST])
    for signature in (TIGHT, FIRST):
        waited_for = _waited_for(fake)
        assert waited_for.signature == signature
        _fail(fake, waited_for)
    missing = CallCovers("m", LADDERS, fake.table).missing(_call(8, 10))
    assert isinstance(missing, GraphFailedError)
    assert str(missing).startswith(f"graph {TIGHT} could not be compiled")


def test_an_exact_size_is_refused_without_room_for_its_graph() -> None:
    fake = Table(max_graphs=1)
    fake.table.request_compile(_signature(8, 512), urgent=False)
    missing = CallCovers("m", EXACT, fake.table).missing(_call(8, 10))
    assert isinstance(missing, GraphRefusedError)
    assert "budget is spent (1 graphs)" in str(missing)


def test_the_largest_graph_of_an_exact_size_is_not_kept_without_room_for_it() -> None:
    ladders = CallLadders(
        rows=Ladder((1, 8)),
        axes=(
            AxisLadder(name="length", ladder=Ladder((16, 512))),
            AxisLadder(name="width", ladder=None),
        ),
    )
    fake = Table(max_graphs=1)
    call = dataclasses.replace(_call(8, 10), sizes=Sizes(rows=8, axes=(10, 5)))
    missing = CallCovers("m", ladders, fake.table).missing(call)
    assert isinstance(missing, Graph)
    assert fake.table.graphs() == [missing]
