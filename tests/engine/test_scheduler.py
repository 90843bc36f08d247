"""Slots and queues are bounded, freed by cancelling, and survive a graph that fails."""

import threading
from typing import Any

import pytest

from harness.engine import GOLDENS, Bench, few_rungs
from harness.waiting import wait_until
from shaperouter_service.compile_cache import CompileCache
from shaperouter_service.decoding import Piece, PrefillProgram
from shaperouter_service.decoding.lowering import Lowered
from shaperouter_service.decoding.program import Program
from shaperouter_service.errors import (
    GraphFailedError,
    GraphRefusedError,
    QueueFullError,
    StartupError,
    StoppingError,
)
from shaperouter_service.generation.run_events import NewTokens, Stalled
from shaperouter_service.graphs import GraphState
from shaperouter_service.routing.signatures import GraphKind, Signature
from shaperouter_service.routing.snapshots import LaneReport

MODEL = "gpt2-untied"  # It has no end token, so runs reach their maximum length.
MODELS = {MODEL: GOLDENS / MODEL}
LONG = 120


@pytest.fixture(scope="module")
def small(kept_compilations: CompileCache) -> Bench:
    """An engine with two slots and a queue of one run."""
    return Bench(MODELS, slots=2, queue_limit=1, compile_cache=kept_compilations)


def _lane(bench: Bench) -> LaneReport:
    (lane,) = (lane for lane in bench.engine.snapshot("w", "i").lanes if lane.beams == 1)
    return lane


def test_a_full_queue_refuses_at_once_and_names_its_limit(small: Bench) -> None:
    with small.admission_held(MODEL):
        waiting = small.submit(MODEL, [1], max_new_tokens=2)
        with pytest.raises(QueueFullError, match="limit 1 waiting"):
            small.submit(MODEL, [1], max_new_tokens=2)
    waiting.wait()


def test_the_backlog_is_estimated_from_recent_runs(small: Bench) -> None:
    one = small.submit(MODEL, [1], max_new_tokens=1)
    one.wait()
    for _ in range(64):
        small.submit(MODEL, [1], max_new_tokens=LONG, eos_token_ids=one.token_ids).wait()
    with small.admission_held(MODEL):
        waiting = small.submit(MODEL, [1], max_new_tokens=LONG)
        assert 0 < _lane(small).backlog_tokens < LONG / 2
    waiting.wait()


def test_a_cancelled_run_frees_its_slot(small: Bench) -> None:
    run = small.submit(MODEL, [1, 2], max_new_tokens=LONG)
    while not isinstance(run.next(), NewTokens):
        pass
    small.engine.cancel(run.run, MODEL)
    wait_until(lambda: _lane(small).active_slots == 0)


def test_a_run_cancelled_in_the_queue_never_gets_a_slot(small: Bench) -> None:
    with small.admission_held(MODEL):
        run = small.submit(MODEL, [1], max_new_tokens=2)
        small.engine.cancel(run.run, MODEL)
        wait_until(lambda: _lane(small).queued == 0)
    assert run.events.empty()


def test_a_prompt_that_reaches_the_models_maximum_is_served_to_its_last_token(
    small: Bench,
) -> None:
    run = small.submit(MODEL, [1] * 127, max_new_tokens=1)
    run.wait()
    assert len(run.token_ids) == 1
    run = small.submit(MODEL, [1] * 100, max_new_tokens=28)
    run.wait()
    assert len(run.token_ids) == 28


def test_only_a_run_before_the_first_graphs_stalls() -> None:
    bench = Bench(MODELS, slots=1)
    first = bench.submit(MODEL, [1, 2, 3], max_new_tokens=4)
    first.wait()
    second = bench.submit(MODEL, [9] * 20, max_new_tokens=50)
    second.wait()
    stalls = [str(e.signature) for e in first.seen if isinstance(e, Stalled)]
    assert stalls[0] == f"{MODEL} prefill 1x128"
    assert first.run.timings.durations().stall_seconds > 0
    assert not [e for e in second.seen if isinstance(e, Stalled)]
    assert second.run.timings.durations().stall_seconds == 0


def test_a_lane_waits_for_the_graph_that_covers_all_of_its_requests(small: Bench) -> None:
    first = small.submit(MODEL, [1, 2], max_new_tokens=3, num_beams=2)
    first.wait()
    second = small.submit(MODEL, [1, 2], max_new_tokens=40, num_beams=2)
    second.wait()
    assert not [event for event in second.seen if isinstance(event, Stalled)]
    assert {str(e.signature) for e in first.seen if isinstance(e, Stalled)} == {
        f"{MODEL} decode 1x256 beams 2"
    }
    assert {str(served) for _, served in second.run.uses} == {
        f"{MODEL} prefill 1x128",
        f"{MODEL} decode 1x256 beams 2",
    }


def test_the_tight_graph_serves_if_the_first_graph_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lower = Program.lower

    def fail_if_long(self: Program) -> Lowered:
        if self.length == 128:
            raise RuntimeError("no memory left")
        return lower(self)

    monkeypatch.setattr(Program, "lower", fail_if_long)
    bench = Bench(MODELS, slots=1)
    run = bench.submit(MODEL, [1] * 20, max_new_tokens=3)
    run.wait()
    assert {str(served) for _, served in run.run.uses} == {
        f"{MODEL} prefill 1x24",
        f"{MODEL} decode 1x64",
    }


def test_a_run_without_any_graph_fails_and_the_others_continue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench(MODELS, slots=1)
    bench.submit(MODEL, [1], max_new_tokens=1).wait()

    def fail(self: Program) -> None:
        raise RuntimeError("no memory left")

    with monkeypatch.context() as patch:
        patch.setattr(Program, "lower", fail)
        broken = bench.submit(MODEL, [1] * 20, max_new_tokens=1, num_beams=2)
        with pytest.raises(GraphFailedError, match=r"decode 1x64 beams 2 .* no memory left"):
            broken.wait()
    bench.submit(MODEL, [1], max_new_tokens=1).wait()
    assert _lane(bench).active_slots == 0


def test_a_frozen_worker_compiles_only_declared_graphs(
    kept_compilations: CompileCache,
) -> None:
    declared = Signature(model=MODEL, kind=GraphKind.DECODE, beams=2, rows=1, length=64)
    bench = Bench(
        MODELS,
        slots=1,
        compile_mode="frozen",
        warm=[declared],
        compile_cache=kept_compilations,
    )
    wait_until(lambda: bench.engine.warm)
    covered = bench.submit(MODEL, [1], max_new_tokens=5, num_beams=2)
    covered.wait()
    assert declared in {served for _, served in covered.run.uses}
    refused = bench.submit(MODEL, [1], max_new_tokens=5, num_beams=4)
    with pytest.raises(GraphRefusedError, match=r"beams 4: nothing is compiled after warm-up"):
        refused.wait()
    made = [g for g in bench.parts.graphs.graphs() if g.state is not GraphState.COLD]
    assert len(made) == 3


def test_a_declared_signature_outside_the_ladders_is_refused() -> None:
    declared = Signature(model=MODEL, kind=GraphKind.DECODE, beams=1, rows=1, length=77)
    with pytest.raises(
        StartupError, match=r"warm: .* decode 1x77 is not a signature of the ladders"
    ):
        Bench(MODELS, slots=1, warm=[declared])


def test_a_budget_below_the_first_graphs_is_refused() -> None:
    with pytest.raises(StartupError, match=r"max-graphs: must be at least 6.*; got 5"):
        Bench(MODELS, slots=1, max_graphs=5)


def test_the_time_that_a_tight_graph_would_have_saved_is_counted(small: Bench) -> None:
    def missed() -> dict[str, float]:
        graphs = small.engine.snapshot("w", "i").graphs
        return {str(g.signature): g.missed_seconds for g in graphs}

    before = missed().get(f"{MODEL} prefill 1x16", 0.0)
    small.submit(MODEL, [1, 2, 3], max_new_tokens=2).wait()
    assert missed()[f"{MODEL} prefill 1x16"] > before


def test_requested_graphs_are_compiled_or_refused_with_a_reason(
    small: Bench,
) -> None:
    requested = Signature(model=MODEL, kind=GraphKind.DECODE, beams=1, rows=2, length=64)
    foreign = Signature(model=MODEL, kind=GraphKind.DECODE, beams=1, rows=3, length=64)
    refused = small.engine.request_compile([requested, foreign])
    assert refused == {foreign: "it is none of the worker's ladders"}
    wait_until(lambda: small.parts.graphs.graph(requested).state is GraphState.READY)


def test_sampling_gives_the_same_tokens_alone_and_with_others(small: Bench) -> None:
    def sample(seed: int):
        return small.submit(
            MODEL, [4, 5, 6], max_new_tokens=30, do_sample=True, temperature=1.3, seed=seed
        )

    alone = sample(99)
    alone.wait()
    company = sample(5)
    company.next()
    together = sample(99)
    together.wait()
    company.wait()
    assert together.token_ids == alone.token_ids
    assert company.token_ids != alone.token_ids


def test_continued_sampling_gives_the_same_tokens(small: Bench) -> None:
    options = {"do_sample": True, "temperature": 1.3, "seed": 7}
    whole = small.submit(MODEL, [4, 5, 6], max_new_tokens=30, **options)
    whole.wait()
    begun = [4, 5, 6, *whole.token_ids[:11]]
    rest = small.submit(MODEL, begun, max_new_tokens=19, **options)
    rest.wait()
    assert rest.token_ids == whole.token_ids[11:]


def test_a_stalled_run_does_not_hold_up_covered_runs(
    kept_compilations: CompileCache,
) -> None:
    bench = Bench(MODELS, slots=1, compile_cache=kept_compilations)
    scheduler = bench.parts.lanes[MODEL, 1]
    bench.submit(MODEL, [1], max_new_tokens=1).wait()
    missing = bench.parts.graphs.graph(
        Signature(model=MODEL, kind=GraphKind.PREFILL, beams=1, rows=1, length=64)
    )
    covers = scheduler.covers
    really_missing = covers.missing
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            covers,
            "missing",
            lambda run: missing if len(run.token_ids) == 60 else really_missing(run),
        )
        cold = bench.submit(MODEL, [1] * 60, max_new_tokens=1)
        assert isinstance(cold.next(), Stalled)
        warm = bench.submit(MODEL, [1], max_new_tokens=1)
        warm.wait()
        assert not [event for event in warm.seen if isinstance(event, Stalled)]
        assert cold.events.empty()
    bench.parts.device.wake()
    cold.wait()


def test_the_stall_of_a_run_that_is_cancelled_in_the_queue_is_counted(
    small: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = small.parts.graphs.graph(
        Signature(model=MODEL, kind=GraphKind.DECODE, beams=1, rows=2, length=64)
    )
    before = sum(missing.stall_seconds.counts)
    covers = small.parts.lanes[MODEL, 1].covers
    monkeypatch.setattr(covers, "missing", lambda _: missing)
    stalled = small.submit(MODEL, [1], max_new_tokens=2)
    assert isinstance(stalled.next(), Stalled)
    small.engine.cancel(stalled.run, MODEL)
    wait_until(lambda: _lane(small).queued == 0)
    wait_until(lambda: sum(missing.stall_seconds.counts) == before + 1)
    assert stalled.run.timings.durations().stall_seconds > 0


def test_a_lane_says_whether_one_of_its_runs_waits_for_a_graph(
    small: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane = small.parts.lanes[MODEL, 1]
    missing = small.parts.graphs.graph(
        Signature(model=MODEL, kind=GraphKind.DECODE, beams=1, rows=2, length=64)
    )
    monkeypatch.setattr(missing, "state", GraphState.COMPILING)
    monkeypatch.setattr(lane.covers, "missing", lambda _: missing)
    stalled = small.submit(MODEL, [1], max_new_tokens=2)
    assert isinstance(stalled.next(), Stalled)
    assert lane.waits_for_graph
    # Its stall has not ended, as it may still wait for a slot, but its graph has.
    with monkeypatch.context() as patch:
        patch.setattr(missing, "state", GraphState.READY)
        assert not lane.waits_for_graph
    monkeypatch.undo()
    small.parts.device.wake()
    stalled.wait()


def test_runs_that_no_single_graph_covers_are_served_by_several(
    kept_compilations: CompileCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long run and a short one; a graph is ready for each, but none for both."""
    bench = Bench(MODELS, slots=2, compile_cache=kept_compilations)
    table = bench.parts.graphs
    short = Signature(model=MODEL, kind=GraphKind.DECODE, beams=1, rows=1, length=64)
    bench.engine.request_compile([short])
    wait_until(lambda: table.graph(short).state is GraphState.READY)
    prompts = [[3], [2] * 70]
    alone = []
    for prompt in prompts:
        alone.append(bench.submit(MODEL, prompt, max_new_tokens=30))
        alone[-1].wait()
    kept = [graph for graph in table.graphs() if graph.state is GraphState.READY]
    assert {graph.signature.rows for graph in kept} == {1}
    # With the native kernels, both lengths would cost the same.
    monkeypatch.setattr(bench.parts.costs, "step_seconds", lambda each: each.length)
    monkeypatch.setattr(
        table,
        "ready",
        lambda model, kind, beams: sorted(
            (graph for graph in kept if graph.signature.kind is kind),
            key=lambda graph: graph.signature.cost_order,
        ),
    )
    with bench.admission_held(MODEL):
        together = [bench.submit(MODEL, prompt, max_new_tokens=30) for prompt in prompts]
    for run in together:
        run.wait()
        assert not [event for event in run.seen if isinstance(event, Stalled)]
    assert [run.token_ids for run in together] == [run.token_ids for run in alone]
    served = [{s.length for _, s in run.run.uses if s.kind == "decode"} for run in together]
    assert served == [{64}, {128}]


def test_a_draining_lane_returns_queued_runs_and_finishes_the_others(
    kept_compilations: CompileCache,
) -> None:
    bench = Bench(MODELS, slots=1, ladders=few_rungs, compile_cache=kept_compilations)
    running = bench.submit(MODEL, [1], max_new_tokens=LONG)
    while not isinstance(running.next(), NewTokens):
        pass
    # Even if the first run ends meanwhile.
    with bench.admission_held(MODEL):
        waiting = bench.submit(MODEL, [1], max_new_tokens=2)
        bench.engine.drain()
    with pytest.raises(StoppingError):
        waiting.wait()
    with pytest.raises(StoppingError):
        bench.submit(MODEL, [1], max_new_tokens=2)
    running.wait()
    assert len(running.token_ids) == LONG


def test_a_device_call_that_hangs_ends_the_worker(
    kept_compilations: CompileCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(
        MODELS,
        slots=1,
        ladders=few_rungs,
        hang_timeout=5.0,
        compile_cache=kept_compilations,
    )
    bench.submit(MODEL, [1], max_new_tokens=2).wait()
    assert not bench.defects
    released = threading.Event()

    def hang(*_: Any, **__: Any) -> Piece:
        released.wait()
        return Piece(is_last=True, start=0, tokens=1, logprobs=None)

    monkeypatch.setattr(PrefillProgram, "__call__", hang)
    bench.submit(MODEL, [1], max_new_tokens=2)
    wait_until(lambda: bench.defects == ["defect"])
    released.set()
