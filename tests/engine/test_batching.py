"""Runs get the same tokens alone and with others, with prompts read whole or in pieces."""

import math
from collections.abc import Iterator, Sequence

import pytest

from harness.device_calls import Call, record_calls
from harness.engine import Bench, Collected
from harness.few_graphs import (
    LENGTH,
    LONG,
    MODEL,
    PIECE,
    bench_of,
    finish,
    prompt_of,
    served,
    together,
    tokens_alone,
    two_slots,
)
from harness.waiting import wait_until
from shaperouter_service.compile_cache import CompileCache
from shaperouter_service.generation.run_events import NewTokens
from shaperouter_service.graphs import Graph, GraphState
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.routing.signatures import GraphKind, Signature
from shaperouter_service.worker.run import Ended
from shaperouter_service.worker.scheduler import LaneScheduler


@pytest.fixture(scope="module")
def bench(kept_compilations: CompileCache) -> Iterator[Bench]:
    bench = two_slots(kept_compilations)
    yield bench
    assert not bench.defects


@pytest.fixture(scope="module")
def whole(kept_compilations: CompileCache) -> Bench:
    """An engine that reads prompts whole."""
    return bench_of(LENGTH, [120], rows=[1], beams=[1], compile_cache=kept_compilations)


@pytest.fixture
def lane(bench: Bench) -> LaneScheduler:
    return bench.parts.lanes[MODEL, 1]


@pytest.fixture
def beam_lane(bench: Bench) -> LaneScheduler:
    graphs = [
        _graph(bench, GraphKind.DECODE, 1, LENGTH, beams=2),
        _graph(bench, GraphKind.DECODE, 2, LENGTH, beams=2),
    ]
    wait_until(lambda: all(graph.state is GraphState.READY for graph in graphs))
    return bench.parts.lanes[MODEL, 2]


def _graph(bench: Bench, kind: GraphKind, rows: int, length: int, *, beams: int = 1) -> Graph:
    signature = Signature(model=MODEL, kind=kind, beams=beams, rows=rows, length=length)
    return bench.parts.graphs.request_compile(signature, urgent=False)


# --- Prompts together ---------------------------------------------------------------------------

SHORT = [{"prompt": prompt_of(length), "max_new_tokens": 8} for length in (3, 16)]


def test_waiting_prompts_of_one_rung_are_read_in_one_call(
    bench: Bench, lane: LaneScheduler
) -> None:
    alone = tokens_alone(bench, *SHORT)
    runs = together(bench, lane, *SHORT)
    assert finish(runs) == alone
    assert [served(run, GraphKind.PREFILL) for run in runs] == [{(2, 16): 1}] * 2
    assert [run.run.padded_prompt_tokens for run in runs] == [16, 16]


def test_prompts_are_read_one_by_one_while_the_graph_for_both_is_not_ready(
    bench: Bench, lane: LaneScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = _graph(bench, GraphKind.PREFILL, 2, 16)
    monkeypatch.setattr(graph, "state", GraphState.COMPILING)
    alone = tokens_alone(bench, *SHORT)
    runs = together(bench, lane, *SHORT)
    assert finish(runs) == alone
    assert [served(run, GraphKind.PREFILL) for run in runs] == [{(1, 16): 1}] * 2


def test_prompts_of_different_rungs_are_read_separately(bench: Bench, lane: LaneScheduler) -> None:
    requests = [SHORT[0], {"prompt": prompt_of(40), "max_new_tokens": 8}]
    alone = tokens_alone(bench, *requests)
    runs = together(bench, lane, *requests)
    assert finish(runs) == alone
    assert [served(run, GraphKind.PREFILL) for run in runs] == [{(1, 16): 1}, {(1, 64): 2}]


@pytest.mark.parametrize("piece", [8, 16, 32, 100, 128, 1000])
def test_prompts_that_take_several_pieces_are_read_alone(piece: int) -> None:
    """The last call gives the first tokens of all rows, so it must contain all their ends."""
    ladders = Ladders.default(max_length=1024, slots=16, prefill_piece=piece)
    for length in ladders.prefill_lengths.rungs:
        rows = ladders.rows(GraphKind.PREFILL, length)
        assert length <= piece or rows.maximum == 1


# --- Prompts in pieces --------------------------------------------------------------------------

EDGES = [1, 2, 16, 17, 31, 32, 33, 34, 63, 64, 65, 88, 89, 95, 96, 97, 98, 119, 120]


def test_a_prompt_read_in_pieces_gets_the_tokens_of_one_read_whole(
    bench: Bench, whole: Bench
) -> None:
    for length in EDGES:
        request = {"prompt": prompt_of(length), "max_new_tokens": 7}
        expected = tokens_alone(whole, request)
        run = bench.submit(MODEL, **request)
        run.wait()
        assert (length, [run.token_ids]) == (length, expected)
        (calls,) = served(run, GraphKind.PREFILL).values()
        assert (length, calls) == (length, math.ceil(length / PIECE))


# --- Batches ------------------------------------------------------------------------------------


@pytest.fixture
def _rows_cost_time(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes rows so slow that it pays to move runs to fewer, but not to take them in turn."""
    monkeypatch.setattr(bench.parts.costs, "step_seconds", lambda each: 1 + each.rows / 2)


@pytest.mark.usefixtures("_rows_cost_time")
def test_when_runs_end_the_others_continue_in_fewer_rows(bench: Bench, lane: LaneScheduler) -> None:
    requests = [
        {"prompt": [1, 2], "max_new_tokens": 10},
        {"prompt": [3], "max_new_tokens": LONG},
    ]
    alone = tokens_alone(bench, *requests)
    runs = together(bench, lane, *requests)
    assert finish(runs) == alone
    short, long = (served(run, GraphKind.DECODE) for run in runs)
    assert short.keys() == {(2, LENGTH)}
    assert long.keys() == {(2, LENGTH), (1, LENGTH)}


def test_a_run_that_joins_another_does_not_change_tokens(bench: Bench) -> None:
    requests = [
        {"prompt": [1, 2], "max_new_tokens": LONG},
        {"prompt": prompt_of(20), "max_new_tokens": LONG, "do_sample": True, "seed": 4},
    ]
    alone = tokens_alone(bench, *requests)
    first = bench.submit(MODEL, **requests[0])
    first.next()
    second = bench.submit(MODEL, **requests[1])
    assert finish([first, second]) == alone


def test_caches_exist_only_while_something_runs(
    bench: Bench, lane: LaneScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []

    def measure(call: Call) -> None:
        if call.signature.kind is GraphKind.DECODE:
            sizes.append(lane.cache_bytes)

    record_calls(monkeypatch, measure)
    wait_until(lambda: lane.cache_bytes == 0)
    run = bench.submit(MODEL, [1], max_new_tokens=LONG)
    run.wait()
    wait_until(lambda: lane.cache_bytes == 0)
    assert run.run.batch is None
    family = lane.model.family
    one_row = 2 * family.layers * family.heads * LENGTH * family.head_size * 4
    # The first chunk is in the same turn as the prefill, before which there were no caches.
    assert sizes[0] == 0
    assert set(sizes[1:]) == {one_row}
    assert bench.engine.model(MODEL).kv_cache_bytes == 0


@pytest.mark.parametrize(("left", "rows"), [(2, 2), (3, 1)])
def test_a_run_moves_to_a_faster_graph_only_if_enough_steps_are_left(
    bench: Bench, lane: LaneScheduler, monkeypatch: pytest.MonkeyPatch, left: int, rows: int
) -> None:
    # A step of one row takes 0.7 of one of two, and a move takes about a step.
    seconds = {1: 0.7, 2: 1.0}
    monkeypatch.setattr(
        bench.parts.graphs,
        "sound_seconds",
        lambda graphs: [seconds[graph.signature.rows] for graph in graphs],
    )
    monkeypatch.setattr(lane, "chunk_steps", lambda *_: 1)
    requests = [{"prompt": prompt_of(4), "max_new_tokens": tokens} for tokens in (4, 4 + left)]
    alone = tokens_alone(bench, *requests)
    calls = record_calls(monkeypatch)
    assert finish(together(bench, lane, *requests)) == alone
    assert calls[-1].signature.rows == rows


# --- Beam search beside it ----------------------------------------------------------------------

BEAMS = [
    {"prompt": prompt_of(5), "max_new_tokens": 20, "num_beams": 2},
    {"prompt": prompt_of(9, 3), "max_new_tokens": 40, "num_beams": 2},
]


def _hypotheses(runs: Sequence[Collected]) -> list[list[list[int]]]:
    for run in runs:
        run.wait()
    return [[list(found.token_ids) for found in run.hypotheses] for run in runs]


def test_beam_search_and_sampling_run_side_by_side(
    bench: Bench, lane: LaneScheduler, beam_lane: LaneScheduler
) -> None:
    sampled = {"prompt": [5, 6], "max_new_tokens": LONG, "do_sample": True, "seed": 3}
    (expected,) = tokens_alone(bench, sampled)
    searched = _hypotheses([bench.submit(MODEL, **BEAMS[0])])
    first = bench.submit(MODEL, **sampled)
    first.next()
    beams = bench.submit(MODEL, **BEAMS[0])
    assert _hypotheses([beams]) == searched
    first.wait()
    assert first.token_ids == expected
    decoding = GraphKind.DECODE
    assert {s.beams for _, s in beams.run.uses if s.kind is decoding} == {2}
    assert {s.beams for _, s in first.run.uses if s.kind is decoding} == {1}


@pytest.mark.usefixtures("_rows_cost_time")
def test_beam_searches_share_a_batch_and_separate(bench: Bench, beam_lane: LaneScheduler) -> None:
    alone = [_hypotheses([bench.submit(MODEL, **request)])[0] for request in BEAMS]
    runs = together(bench, beam_lane, *BEAMS)
    assert _hypotheses(runs) == alone
    short, long = (served(run, GraphKind.DECODE) for run in runs)
    assert (2, LENGTH) in short
    assert long.keys() == {(2, LENGTH), (1, LENGTH)}
    assert not [event for run in runs for event in run.seen if isinstance(event, NewTokens)]
    assert all(isinstance(run.seen[-1], Ended) for run in runs)
