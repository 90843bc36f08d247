"""Calls go to the worker that answers soonest, and wait for no graph while another one covers."""

import dataclasses

import pytest

from shaperouter_service.routing.call_decision import CallOption, CallShape, decide_call
from shaperouter_service.routing.call_ladders import AxisLadder, CallLadders
from shaperouter_service.routing.choice import Decision, NoOption
from shaperouter_service.routing.compile_policy import compile_requests
from shaperouter_service.routing.costs import Costs, Dimensions
from shaperouter_service.routing.ladder import Ladder
from shaperouter_service.routing.signatures import GraphKind, Signature
from shaperouter_service.routing.snapshots import CallQueueReport, GraphState
from shaperouter_service.routing.views import GraphView, WorkerView

NOW = 1000.0
MODEL = "f"
LADDERS = CallLadders(
    rows=Ladder((1, 8, 32)), axes=(AxisLadder(name="length", ladder=Ladder((16, 64, 512))),)
)
EXACT = CallLadders(rows=Ladder((1, 8)), axes=(AxisLadder(name="width", ladder=None),))


def call(rows: int, length: int = 1, exact: tuple[int, ...] = ()) -> Signature:
    return Signature(
        model=MODEL, kind=GraphKind.CALL, beams=1, rows=rows, length=length, exact=exact
    )


def worker(
    name: str = "a",
    ready: dict[Signature, float] | None = None,
    *graphs: GraphView,
    ladders: CallLadders = LADDERS,
    elements: int = 0,
) -> WorkerView:
    """A worker with ready graphs, each with its measured seconds, and others."""
    costs = Costs({MODEL: Dimensions(weight_bytes=10**8, cache_bytes_per_token=0, prefill_piece=1)})
    for signature, seconds in (ready or {}).items():
        costs.measured(signature, seconds)
    views = [GraphView(signature=each, state=GraphState.READY) for each in ready or {}]
    return WorkerView(
        name=name,
        ladders={},
        lanes={},
        calls={MODEL: ladders},
        call_queues={
            MODEL: CallQueueReport(model=MODEL, calls=1, rows=1, elements=elements)
            if elements
            else CallQueueReport(model=MODEL)
        },
        graphs={view.signature: view for view in (*views, *graphs)},
        costs=costs,
        room=10,
    )


def taken(rows: int, length: int, *workers: WorkerView) -> CallOption:
    shape = CallShape(model=MODEL, rows=rows, sizes=(length,))
    decision = decide_call(shape, workers, NOW)
    assert isinstance(decision, Decision)
    return decision.taken


def test_without_a_worker_there_is_no_option() -> None:
    assert isinstance(decide_call(CallShape(model=MODEL, rows=1, sizes=(1,)), [], NOW), NoOption)


def test_a_worker_whose_ladders_are_too_short_is_no_option() -> None:
    short = dataclasses.replace(LADDERS, axes=(AxisLadder(name="length", ladder=Ladder((16,))),))
    ready = {call(1, 512): 0.01}
    option = taken(1, 100, worker("short", ladders=short), worker("long", ready))
    assert option.worker == "long"


def test_the_cheapest_ready_cover_serves() -> None:
    ready = {call(1, 64): 0.01, call(8, 64): 0.03, call(8, 512): 0.2}
    option = taken(5, 40, worker("a", ready))
    assert (option.graph, option.tight) == (call(8, 64), call(8, 64))
    assert option.call_seconds == pytest.approx(0.03)
    assert option.stall_seconds == 0


def test_a_graph_of_fewer_rows_computes_a_call_in_parts() -> None:
    option = taken(5, 40, worker("a", {call(1, 64): 0.01, call(32, 64): 0.2}))
    assert option.graph == call(1, 64)
    assert option.call_seconds == pytest.approx(0.05)


def test_a_batch_above_the_last_rung_takes_several_full_parts() -> None:
    option = taken(100, 16, worker("a", {call(32, 16): 0.1}))
    assert option.tight == call(32, 16)
    assert option.call_seconds == pytest.approx(0.4)


def test_a_call_waits_for_no_graph_while_a_larger_one_is_ready() -> None:
    coming = GraphView(signature=call(1, 16), state=GraphState.COMPILING, ready_at=NOW + 0.001)
    option = taken(1, 10, worker("a", {call(1, 512): 0.5}, coming))
    assert (option.graph, option.stall_seconds) == (call(1, 512), 0)


def test_without_a_cover_a_call_waits_for_the_graph_that_is_ready_first() -> None:
    coming = GraphView(signature=call(1, 512), state=GraphState.COMPILING, ready_at=NOW + 2)
    option = taken(1, 10, worker("a", {}, coming))
    assert (option.graph, option.stall_seconds) == (call(1, 512), 2)


def test_a_worker_without_room_makes_its_first_graph() -> None:
    full = dataclasses.replace(worker("a", {}), room=0)
    assert taken(1, 10, full).graph == call(1, 512)


def test_an_exact_size_waits_for_its_own_graph() -> None:
    ready = {call(1, exact=(3,)): 0.01}
    option = taken(1, 5, worker("a", ready, ladders=EXACT))
    assert option.graph == call(1, exact=(5,))
    assert option.stall_seconds > 0


@pytest.mark.parametrize("room", [0, 10])
def test_an_exact_size_goes_to_the_worker_that_may_make_its_graph(room: int) -> None:
    """Unless all would refuse it: then one of them says why."""
    full = dataclasses.replace(worker("a", {}, ladders=EXACT), room=0)
    busy = dataclasses.replace(worker("b", {}, ladders=EXACT, elements=9), room=room)
    assert taken(1, 5, full, busy).worker == ("b" if room else "a")


def test_a_worker_without_room_serves_an_exact_size_whose_graph_it_has() -> None:
    full = dataclasses.replace(worker("a", {call(1, exact=(5,)): 0.01}, ladders=EXACT), room=0)
    assert taken(1, 5, full, worker("b", {}, ladders=EXACT)).worker == "a"


def test_earlier_calls_count_at_the_speed_of_the_graph_that_joins_them_best() -> None:
    ready = {call(1, 64): 0.01, call(32, 64): 0.064}
    option = taken(1, 64, worker("a", ready, elements=32 * 64))
    assert option.queue_seconds == pytest.approx(0.064)


def test_a_call_goes_where_it_ends_soonest() -> None:
    ready = {call(1, 64): 0.01}
    busy, idle = worker("a", ready, elements=64 * 50), worker("b", ready)
    assert taken(1, 64, busy, idle).worker == "b"


def test_calls_of_one_shape_go_to_one_of_equal_workers() -> None:
    ready = {call(rows, 64): 0.01 for rows in (1, 8, 32)}
    workers = [worker(name, ready) for name in "abc"]
    assert len({taken(rows, 64, *workers).worker for rows in (1, 5, 30)}) == 1


def test_another_busy_model_makes_a_call_take_turns() -> None:
    alone = worker("a", {call(1, 64): 0.01})
    other = CallQueueReport(model="g", calls=2, rows=2, elements=2)
    shared = dataclasses.replace(alone, call_queues={**alone.call_queues, "g": other})
    assert taken(1, 64, shared).call_seconds == 2 * taken(1, 64, alone).call_seconds


def test_a_call_graph_is_compiled_once_it_would_have_saved_enough() -> None:
    def missed(seconds: float) -> WorkerView:
        cold = GraphView(signature=call(8, 16), state=GraphState.COLD, would_save_seconds=seconds)
        return worker("a", {call(1, 512): 0.5}, cold)

    assert compile_requests([missed(0.01)], NOW) == {}
    assert compile_requests([missed(60.0)], NOW) == {"a": [call(8, 16)]}
