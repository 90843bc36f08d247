"""The progress of a worker's warm-up is in the log and in its snapshots."""

import errno
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from harness.engine import GOLDENS, TIMEOUT, Bench
from harness.graph_table import Table
from harness.waiting import wait_until
from shaperouter_service import kernels
from shaperouter_service.checkpoints.safetensors_reader import Checkpoint
from shaperouter_service.compile_cache import CompileCache
from shaperouter_service.errors import StartupError
from shaperouter_service.graphs import GraphTable
from shaperouter_service.models import weight_loading
from shaperouter_service.routing.signatures import GraphKind, Signature
from shaperouter_service.routing.snapshots import GraphState
from shaperouter_service.worker import warm_up
from shaperouter_service.worker.warm_up import WarmUp

MODEL = "gpt2-untied"
DECLARED = Signature(model=MODEL, kind=GraphKind.PREFILL, rows=1, length=16, beams=1)


def test_the_warm_up_reports_its_progress(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines: list[dict[str, Any]] = []

    def info(event: str, **fields: Any) -> None:
        # Engines of other tests may still make graphs, because they start with other graphs.
        if fields["graphs"] == 3:
            lines.append(fields | {"event": event})

    monkeypatch.setattr(warm_up, "LOG_INTERVAL", 0.0)
    monkeypatch.setattr(warm_up, "log", SimpleNamespace(info=info))
    # One thread makes the graphs, so that none is ready before the one before it was logged.
    monkeypatch.setattr(GraphTable, "work_off", lambda *_: None)
    # Without a cache, so that the compilation outlasts the check.
    bench = Bench({MODEL: GOLDENS / MODEL}, compile_threads=1, warm=[DECLARED])
    begun = bench.engine.snapshot("w", "i")
    wait_until(lambda: "worker ready" in [line["event"] for line in lines], timeout=TIMEOUT)
    *told, ready = lines
    assert {line["event"] for line in told} == {
        "graphs compiled or loaded before the worker is ready"
    }
    assert [line["done"] for line in told] == [1, 2]
    assert all(line["left_seconds"] >= 0 for line in told)
    assert ready["event"] == "worker ready"

    first = [graph for graph in begun.graphs if graph.before_ready]
    assert len(first) == 3
    assert DECLARED in [graph.signature for graph in first]
    # The last to be made was still on its way when the engine had begun.
    assert max(graph.left_seconds for graph in first) > 0
    ended = bench.engine.snapshot("w", "i")
    assert ended.warm
    assert {graph.state for graph in ended.graphs} == {GraphState.READY}
    assert not any(graph.left_seconds for graph in ended.graphs)


def test_a_worker_that_starts_without_some_of_its_graphs_warns() -> None:
    fake = Table("no registers")
    started = WarmUp(fake.table, covers=[DECLARED])
    started.start()
    fake.programs[DECLARED].go_on.set()
    wait_until(lambda: bool(started.failed_covers))
    with capture_logs() as lines:
        started.log_progress()
    (line,) = lines
    assert (line["event"], line["log_level"], line["failed"]) == ("worker ready", "warning", 1)


def test_a_worker_stays_ready_while_a_failed_graph_is_tried_again() -> None:
    fake = Table("no registers")
    started = WarmUp(fake.table, covers=[DECLARED])
    started.start()
    fake.programs[DECLARED].go_on.set()
    wait_until(lambda: started.is_done)
    graph = fake.table.known(DECLARED)
    graph.retry_at = 0.0
    fake.table.request_compile(DECLARED, urgent=True)
    assert not graph.has_ended
    assert started.is_done
    fake.programs[DECLARED].go_on.set()


def test_the_progress_of_a_warm_up_keeps_no_graph_of_a_freed_model() -> None:
    fake = Table()
    cover = Signature(model="m", kind=GraphKind.PREFILL, rows=1, length=16, beams=1)
    started = WarmUp(fake.table, covers=[cover])
    started.start()
    fake.programs[cover].go_on.set()
    wait_until(lambda: started.is_done)
    fake.table.remove("m")
    assert "1 graphs" in str(started)
    assert fake.table.graphs() == []


def test_a_graph_requested_later_is_not_part_of_the_warm_up(
    kept_compilations: CompileCache,
) -> None:
    bench = Bench({MODEL: GOLDENS / MODEL}, compile_cache=kept_compilations)
    bench.engine.request_compile([DECLARED])
    wait_until(lambda: bench.engine.warm, timeout=TIMEOUT)
    asked = {
        graph.signature: graph.before_ready for graph in bench.engine.snapshot("w", "i").graphs
    }
    assert not asked[DECLARED]
    assert sum(asked.values()) == 2


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> list[GraphTable]:
    """The tables of graphs of engines that start."""
    if kernels.choose("auto") is None:
        pytest.skip("weights are read first without the kernels")
    made: list[GraphTable] = []
    start = GraphTable.__init__

    def recording(table: GraphTable, *args: Any, **options: Any) -> None:
        start(table, *args, **options)
        made.append(table)

    monkeypatch.setattr(GraphTable, "__init__", recording)
    return made


def before_values(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Lets something happen before the values of weights are read."""

    def open_checkpoint(*args: Any, **options: Any) -> Checkpoint:
        act()
        return Checkpoint(*args, **options)

    monkeypatch.setattr(weight_loading, "Checkpoint", open_checkpoint)


def test_the_first_graphs_are_made_while_weights_are_read(
    monkeypatch: pytest.MonkeyPatch, tables: list[GraphTable], kept_compilations: CompileCache
) -> None:
    def all_made() -> bool:
        return bool(tables) and [graph.state for graph in tables[0].graphs()] == ["ready"] * 2

    before_values(monkeypatch, lambda: wait_until(all_made, timeout=TIMEOUT))
    bench = Bench({MODEL: GOLDENS / MODEL}, compile_cache=kept_compilations, beam_cover=False)
    started = bench.submit(MODEL, [1, 2, 3], max_new_tokens=8)
    monkeypatch.undo()
    usual = Bench({MODEL: GOLDENS / MODEL}, compile_cache=kept_compilations)
    assert started.token_ids == usual.submit(MODEL, [1, 2, 3], max_new_tokens=8).token_ids


def test_when_it_is_idle_a_worker_compiles_a_graph_for_several_requests(
    kept_compilations: CompileCache,
) -> None:
    bench = Bench({MODEL: GOLDENS / MODEL}, compile_cache=kept_compilations, beam_cover=True)
    graphs = bench.parts.graphs
    wait_until(lambda: len(graphs.ready(MODEL, GraphKind.DECODE, 1)) == 2, timeout=TIMEOUT)
    made = {(each.signature.rows, each.signature.length) for each in graphs.graphs()}
    assert (4, 128) in made


def assert_nothing_compiles(table: GraphTable) -> None:
    states = {graph.state for graph in table.graphs()}
    assert not states & {GraphState.TRACING, GraphState.COMPILING}


@pytest.mark.parametrize(
    "error",
    [
        StartupError("model.safetensors: cannot be read: it is gone"),
        OSError(errno.EMFILE, "it is gone"),
    ],
)
def test_a_weight_that_cannot_be_read_ends_the_start_when_nothing_compiles(
    monkeypatch: pytest.MonkeyPatch,
    tables: list[GraphTable],
    kept_compilations: CompileCache,
    error: Exception,
) -> None:
    def damaged() -> None:
        wait_until(lambda: bool(tables), timeout=TIMEOUT)
        raise error

    before_values(monkeypatch, damaged)
    with pytest.raises(type(error), match="it is gone"):
        Bench({MODEL: GOLDENS / MODEL}, compile_cache=kept_compilations)
    assert_nothing_compiles(tables[0])


def test_a_declared_graph_without_room_ends_the_start_when_nothing_compiles(
    tables: list[GraphTable], kept_compilations: CompileCache
) -> None:
    with pytest.raises(StartupError, match=r"warm: .*budget is spent \(6 graphs\)"):
        Bench(
            {MODEL: GOLDENS / MODEL},
            compile_cache=kept_compilations,
            max_graphs=6,
            warm=[DECLARED],
        )
    assert_nothing_compiles(tables[0])
