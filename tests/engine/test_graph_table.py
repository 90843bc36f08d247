"""The table compiles each graph once, urgent ones first, and within its budget."""

import dataclasses
import errno
import itertools
import math
import os
import threading
import time
from collections.abc import Sequence

import pytest
import tensorflow as tf

from harness.graph_table import REMOVED, FakeProgram, Table
from harness.waiting import wait_until
from shaperouter_service.errors import (
    ExhaustedError,
    GraphFailedError,
    GraphRefusedError,
    ServiceError,
    StartupError,
)
from shaperouter_service.graphs import (
    Graph,
    GraphState,
    NoCover,
)
from shaperouter_service.graphs.graph import MAX_ERROR, NEWEST_STEPS
from shaperouter_service.graphs.graph_table import MAX_FAILED
from shaperouter_service.graphs.memory_maps import MemoryMaps
from shaperouter_service.routing.signatures import GraphKind, Signature
from shaperouter_service.system.process import NICE
from shaperouter_service.worker.ladders import check_further
from shaperouter_service.worker.snapshot import report_graph


def _signature(length: int, rows: int = 1) -> Signature:
    return Signature(model="m", kind=GraphKind.DECODE, beams=1, rows=rows, length=length)


def test_a_signature_requested_several_times_is_compiled_once() -> None:
    fake = Table()
    askers = [
        threading.Thread(
            target=fake.table.request_compile, args=[_signature(64)], kwargs={"urgent": True}
        )
        for _ in range(16)
    ]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    fake.programs[_signature(64)].go_on.set()
    graph = fake.table.request_compile(_signature(64), urgent=True)
    wait_until(lambda: graph.state is GraphState.READY)
    assert (len(fake.programs), graph.traces, graph.compiles) == (1, 1, 1)
    assert fake.changes >= 3


def test_urgent_graphs_go_before_earlier_ones() -> None:
    fake = Table()
    first = fake.table.request_compile(_signature(64), urgent=True)
    wait_until(lambda: first.state is GraphState.COMPILING)
    later = [fake.table.request_compile(_signature(length), urgent=False) for length in (128, 256)]
    raised = fake.table.request_compile(_signature(256), urgent=True)
    assert fake.table.queue_depth == 2
    for program in fake.programs.values():
        if program is not fake.programs[_signature(128)]:
            program.go_on.set()
    wait_until(lambda: raised.state is GraphState.READY)
    assert later[0].state is not GraphState.READY
    fake.programs[_signature(128)].go_on.set()
    wait_until(lambda: later[0].state is GraphState.READY)
    assert fake.table.queue_depth == 0


def test_more_threads_work_off_the_queue_and_end() -> None:
    fake = Table()
    graphs = [fake.table.request_compile(_signature(length), urgent=True) for length in (64, 128)]
    before = set(threading.enumerate())
    fake.table.work_off(1)
    [more] = set(threading.enumerate()) - before
    wait_until(lambda: [graph.state for graph in graphs] == [GraphState.COMPILING] * 2)
    for program in fake.programs.values():
        program.go_on.set()
    more.join(60)
    assert not more.is_alive()
    last = fake.table.request_compile(_signature(256), urgent=True)
    fake.programs[_signature(256)].go_on.set()
    wait_until(lambda: last.state is GraphState.READY)


def test_a_failed_graph_keeps_its_reason_and_covers_nothing() -> None:
    fake = Table(error="out of memory")
    graph = fake.table.request_compile(_signature(64), urgent=True)
    fake.programs[_signature(64)].go_on.set()
    wait_until(lambda: graph.state is GraphState.FAILED)
    assert (graph.error, graph.failures, graph.compiles) == ("out of memory", 1, 0)
    assert isinstance(fake.table.cover(_signature(64)), NoCover)


def _exact(size: int) -> Signature:
    return Signature(model="m", kind=GraphKind.CALL, rows=1, length=1, exact=(size,))


def _fail_all(fake: Table, sizes: Sequence[int], *, by_call: bool) -> None:
    """Lets a graph of each exact size fail, one after the other."""
    for size in sizes:
        graph = fake.table.request_compile(_exact(size), urgent=True, by_call=by_call)
        fake.programs[_exact(size)].go_on.set()
        wait_until(lambda graph=graph: graph.state is GraphState.FAILED)


def test_only_the_newest_failures_of_exact_sizes_are_kept() -> None:
    fake = Table(error="no registers")
    _fail_all(fake, range(MAX_FAILED + 3), by_call=True)
    newest = [_exact(size) for size in range(3, MAX_FAILED + 3)]
    wait_until(lambda: [graph.signature for graph in fake.table.graphs()] == newest)


def test_failures_of_graphs_that_were_requested_by_name_are_kept() -> None:
    """A worker waits at its start until each of its graphs is ready or has failed."""
    fake = Table(error="no registers")
    _fail_all(fake, range(MAX_FAILED + 3), by_call=False)
    _fail_all(fake, range(100, 100 + MAX_FAILED), by_call=True)
    assert len(fake.table.graphs()) == 2 * MAX_FAILED + 3


def test_only_the_newest_refusals_of_exact_sizes_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs with room when they are requested, and none once it is their turn."""
    fake = Table(max_memory_bytes=1000)
    memory = itertools.cycle([0, 1000])
    monkeypatch.setattr("shaperouter_service.graphs.budget.memory_bytes", lambda: next(memory))
    for size in range(MAX_FAILED + 3):
        graph = fake.table.request_compile(_exact(size), urgent=True, by_call=True)
        wait_until(lambda graph=graph: graph.has_ended)
    assert len(fake.table.graphs()) == MAX_FAILED


def test_the_error_of_a_failed_graph_is_shortened() -> None:
    fake = Table(error="no registers " * 1000)
    graph = fake.table.request_compile(_signature(64), urgent=True)
    fake.programs[_signature(64)].go_on.set()
    wait_until(lambda: graph.state is GraphState.FAILED)
    assert graph.error.startswith("no registers no registers")
    assert graph.error.endswith("… (13000 characters)")
    assert len(graph.error) < MAX_ERROR + 50


@pytest.mark.parametrize(
    ("error", "failure"),
    [("can't start new thread", ExhaustedError), ("any other", GraphFailedError)],
)
def test_requests_are_refused_for_now_if_a_graph_failed_for_want_of_memory(
    error: str, failure: type[ServiceError]
) -> None:
    fake = Table(error=error)
    graph = fake.table.request_compile(_signature(64), urgent=True)
    fake.programs[_signature(64)].go_on.set()
    wait_until(lambda: graph.state is GraphState.FAILED)
    assert type(graph.failure) is failure


def test_tensorflows_lack_of_memory_is_a_lack_of_memory() -> None:
    lack = tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")
    defect = tf.errors.InternalError(None, None, "a defect")
    assert ExhaustedError.of(lack)
    assert ExhaustedError.of(defect) is None


def test_the_cheapest_ready_graph_that_is_large_enough_covers() -> None:
    fake = Table()
    for signature in (_signature(256, rows=4), _signature(128, rows=2), _signature(64)):
        graph = fake.table.request_compile(signature, urgent=True)
        fake.programs[signature].go_on.set()
        wait_until(lambda graph=graph: graph.state is GraphState.READY)
    cover = fake.table.cover(_signature(100))
    assert not isinstance(cover, NoCover)
    assert cover.signature == _signature(128, rows=2)
    assert isinstance(fake.table.cover(_signature(512)), NoCover)


def test_a_failed_graph_is_tried_again_after_a_pause_and_not_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = Table(error="out of memory")
    graph = fake.table.request_compile(_signature(64), urgent=True)
    fake.programs[_signature(64)].go_on.set()
    wait_until(lambda: graph.state is GraphState.FAILED)
    monkeypatch.setattr(graph, "retry_at", math.inf)
    fake.error = ""
    assert fake.table.request_compile(_signature(64), urgent=True).state is GraphState.FAILED
    monkeypatch.setattr(graph, "retry_at", 0.0)
    fake.table.request_compile(_signature(64), urgent=True)
    fake.programs[_signature(64)].go_on.set()
    wait_until(lambda: graph.state is GraphState.READY)
    assert (graph.error, graph.failures, graph.compiles, graph.traces) == ("", 1, 1, 2)


def test_each_failure_doubles_the_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Table(error="out of memory")
    pauses: list[float] = []
    fail = Graph.fail

    def record(self: Graph, error: str, pause: float) -> None:
        pauses.append(pause)
        fail(self, error, pause)

    monkeypatch.setattr(Graph, "fail", record)
    for failures in (1, 2, 3):
        graph = fake.table.request_compile(_signature(64), urgent=True)
        fake.programs[_signature(64)].go_on.set()
        wait_until(
            lambda graph=graph, n=failures: (graph.failures, graph.state) == (n, GraphState.FAILED)
        )
        graph.retry_at = 0.0
    assert pauses == [10.0, 20.0, 40.0]


def test_the_graph_that_would_save_most_goes_first() -> None:
    fake = Table()
    # It has another kind than these, so their savings do not restart when it is ready.
    other = dataclasses.replace(_signature(64), beams=2)
    first = fake.table.request_compile(other, urgent=True)
    wait_until(lambda: first.state is GraphState.COMPILING)
    little, much = (
        fake.table.request_compile(_signature(length), urgent=False) for length in (128, 256)
    )
    fake.table.record_possible_savings(little.signature, 1.0)
    fake.table.record_possible_savings(much.signature, 2.0)
    for signature in (other, _signature(256)):
        fake.programs[signature].go_on.set()
    wait_until(lambda: much.state is GraphState.READY)
    assert little.state is not GraphState.READY
    fake.programs[_signature(128)].go_on.set()
    wait_until(lambda: little.state is GraphState.READY)


def test_graphs_are_traced_at_normal_priority_and_compiled_at_a_lower_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    priorities: dict[str, int] = {}

    def note(step: str) -> None:
        priorities[step] = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    monkeypatch.setattr(FakeProgram, "lower", lambda _: note("trace"))
    monkeypatch.setattr(FakeProgram, "compile", lambda _: note("compile"))
    graph = Table().table.request_compile(_signature(64), urgent=True)
    wait_until(lambda: graph.state is GraphState.READY)
    note("here")
    lowest = 19
    assert priorities["trace"] == priorities["here"]
    assert priorities["compile"] == min(priorities["here"] + NICE, lowest)


def test_a_call_beside_a_trace_says_nothing_about_the_time_of_a_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake, go_on = Table(), threading.Event()
    monkeypatch.setattr(FakeProgram, "lower", lambda _: go_on.wait(60))
    graph = fake.table.request_compile(_signature(64), urgent=True)
    served = Graph(_signature(128))
    wait_until(lambda: graph.state is GraphState.TRACING)
    wait_until(lambda: fake.table.tracer.was_tracing(0.0))
    fake.table.record(served, 1.0, steps=1)
    assert served.step_seconds is None
    go_on.set()
    wait_until(lambda: graph.state is GraphState.COMPILING)
    wait_until(lambda: not fake.table.tracer.was_tracing(0.01))
    assert fake.table.tracer.was_tracing(60.0)
    fake.table.record(served, 0.01, steps=1)
    assert served.step_seconds == 0.01
    fake.programs[_signature(64)].go_on.set()


def test_a_ready_graph_resets_the_savings_of_similar_graphs() -> None:
    fake = Table()
    like, unlike = _signature(128), dataclasses.replace(_signature(64), beams=2)
    for signature in (like, unlike):
        fake.table.record_possible_savings(signature, 1.0)
    made = fake.table.request_compile(_signature(64), urgent=True)
    fake.programs[_signature(64)].go_on.set()
    wait_until(lambda: made.state is GraphState.READY)
    now = time.monotonic()
    left = [fake.table.graph(signature).would_save.at(now) for signature in (like, unlike)]
    assert left == [0.0, pytest.approx(1.0)]


def test_the_time_of_a_step_is_that_of_the_fastest_recent_call() -> None:
    graph = Graph(_signature(64))
    for seconds in (9.0, 3.0):
        graph.record_call(seconds, steps=1)
        assert graph.best_step_seconds is None
    graph.record_call(4.0, steps=1)
    assert graph.best_step_seconds == 3.0
    for _ in range(NEWEST_STEPS):
        graph.record_call(5.0, steps=1)
    assert graph.best_step_seconds == 5.0


def test_a_call_while_the_process_was_stopped_does_not_count() -> None:
    graph = Graph(_signature(64))
    for seconds in (0.5, 30.0, 0.5, 0.5, 30.0):
        graph.record_call(seconds, steps=1)
    assert graph.step_seconds == 0.5


def test_routers_are_told_the_time_of_a_step_after_three_calls() -> None:
    graph = Graph(_signature(64))
    told = []
    for seconds in (30.0, 0.5, 0.5):
        graph.record_call(seconds, steps=1)
        told.append(report_graph(graph, "w", left_seconds=0.0, before_ready=True).step_seconds)
    assert told == [0.0, 0.0, 0.5]


def test_over_the_budget_only_first_graphs_are_compiled() -> None:
    first = _signature(1024)
    fake = Table(max_graphs=2, first=[first])
    fake.table.request_compile(_signature(64), urgent=False)
    with pytest.raises(GraphRefusedError, match=r"1x128.*budget is spent \(2 graphs\)"):
        fake.table.request_compile(_signature(128), urgent=True)
    assert fake.table.graph(_signature(128)).state is GraphState.COLD
    graph = fake.table.request_compile(first, urgent=True)
    for program in fake.programs.values():
        program.go_on.set()
    wait_until(lambda: graph.state is GraphState.READY)


def test_a_queued_graph_is_refused_once_the_memory_is_used_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = _signature(1024)
    fake = Table(max_memory_bytes=1000, first=[first])
    memory = 999
    monkeypatch.setattr("shaperouter_service.graphs.budget.memory_bytes", lambda: memory)
    making, waiting = (
        fake.table.request_compile(_signature(length), urgent=True) for length in (64, 128)
    )
    wait_until(lambda: making.state is GraphState.COMPILING)
    cover = fake.table.request_compile(first, urgent=False)
    memory = 1000
    for program in fake.programs.values():
        program.go_on.set()
    wait_until(lambda: cover.state is GraphState.READY)
    assert making.state is GraphState.READY
    assert (waiting.state, waiting.has_ended, waiting.traces) == (GraphState.COLD, True, 0)
    assert waiting.error.endswith("the worker's budget is spent (100 graphs, 1000 bytes of memory)")


def test_a_refused_graph_can_be_requested_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = Table(max_memory_bytes=1000)
    memory = iter([0, 1000, 0, 0])
    monkeypatch.setattr("shaperouter_service.graphs.budget.memory_bytes", lambda: next(memory))
    graph = fake.table.request_compile(_signature(64), urgent=True)
    wait_until(lambda: graph.has_ended)
    fake.table.request_compile(_signature(64), urgent=True)
    fake.programs[_signature(64)].go_on.set()
    wait_until(lambda: graph.state is GraphState.READY)
    assert (graph.error, graph.failures) == ("", 0)


def test_nothing_more_is_compiled_once_the_memory_maps_are_spent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    maps = MemoryMaps(800, 1000)
    monkeypatch.setattr("shaperouter_service.graphs.graph_table.memory_maps", lambda: maps)
    fake = Table()
    graph = fake.table.request_compile(_signature(64), urgent=True)
    fake.programs[_signature(64)].go_on.set()
    wait_until(lambda: graph.state is GraphState.READY)
    assert fake.table.room == 0
    with pytest.raises(GraphRefusedError, match=r"1x128.*800 of 1000 memory maps.*restart it"):
        fake.table.request_compile(_signature(128), urgent=True)
    with pytest.raises(StartupError, match=r"800 of 1000 memory maps.*restart the worker"):
        check_further(fake.table, [_signature(64)], models=["m", "n"])


def test_the_last_count_of_memory_maps_holds_while_they_cannot_be_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts = [MemoryMaps(799, 1000)]

    def count() -> MemoryMaps:
        if not counts:
            raise OSError(errno.EMFILE, "Too many open files")
        return counts.pop()

    monkeypatch.setattr("shaperouter_service.graphs.graph_table.memory_maps", count)
    fake = Table()
    for length in (64, 128):
        graph = fake.table.request_compile(_signature(length), urgent=True)
        fake.programs[_signature(length)].go_on.set()
        wait_until(lambda graph=graph: graph.state is GraphState.READY)
    assert fake.table.maps == MemoryMaps(799, 1000)


def test_a_frozen_table_has_room_for_graphs_that_are_thawed() -> None:
    fake = Table(max_graphs=3)
    fake.table.freeze()
    assert (fake.table.room, fake.table.room_once_thawed) == (0, 3)
    fake.table.thaw([_signature(64)])
    graph = fake.table.request_compile(_signature(64), urgent=True)
    fake.programs[_signature(64)].go_on.set()
    wait_until(lambda: graph.state is GraphState.READY)
    assert fake.table.room_once_thawed == 2


def test_graphs_that_are_refused_are_not_kept() -> None:
    fake = Table()
    fake.table.freeze()
    for length in (64, 128):
        with pytest.raises(GraphRefusedError):
            fake.table.request_compile(_signature(length), urgent=True)
    assert fake.table.graphs() == []


def test_queued_graphs_of_a_frozen_table_are_not_compiled() -> None:
    fake = Table()
    making, waiting = (
        fake.table.request_compile(_signature(length), urgent=True) for length in (64, 128)
    )
    wait_until(lambda: making.state is GraphState.COMPILING)
    fake.table.freeze()
    fake.programs[_signature(64)].go_on.set()
    wait_until(lambda: waiting.has_ended)
    assert (making.state, waiting.state) == (GraphState.READY, GraphState.COLD)
    assert waiting.error.endswith("nothing is compiled after warm-up (mode frozen)")


def test_a_budget_is_exhausted_once_a_worthwhile_graph_has_no_room() -> None:
    fake = Table(max_graphs=1)
    graph = fake.table.request_compile(_signature(64), urgent=False)
    assert not fake.table.exhausted
    fake.table.graph(_signature(128)).record_miss(1000.0)
    assert fake.table.exhausted
    fake.programs[_signature(64)].go_on.set()
    wait_until(lambda: graph.state is GraphState.READY)


def test_a_request_for_a_model_that_has_just_been_removed_leaves_no_graph() -> None:
    fake = Table()
    of_removed = dataclasses.replace(_signature(64), model=REMOVED)
    with pytest.raises(KeyError):
        fake.table.request_compile(of_removed, urgent=True)
    assert not fake.table.graphs()


def test_a_frozen_table_compiles_nothing() -> None:
    fake = Table()
    fake.table.freeze()
    with pytest.raises(GraphRefusedError, match="nothing is compiled after warm-up"):
        fake.table.request_compile(_signature(64), urgent=True)
    assert not fake.programs
