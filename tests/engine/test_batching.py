"""Runs get the same tokens alone and with others, with prompts read whole or in pieces."""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import pytest

from harness.device_calls import Call, record_calls, record_calls_left
from harness.engine import GOLDENS, Bench, Collected
from harness.waiting import wait_until
from shaperouter_service.compile_cache import CompileCache
from shaperouter_service.generation.run_events import NewTokens
from shaperouter_service.graphs import Graph, GraphState
from shaperouter_service.routing.ladder import Ladder
from shaperouter_service.routing.ladders import Ladders, LaneLadders
from shaperouter_service.routing.signatures import GraphKind, Signature
from shaperouter_service.worker import scheduler
from shaperouter_service.worker.run import Ended, Phase
from shaperouter_service.worker.scheduler import LaneScheduler

MODEL = "gpt2-untied"  # It has no end token, so runs generate all their tokens.
PIECE = 32
LENGTH = 128
# The longest rung is not a multiple of the piece.
PREFILL_LENGTHS = (16, 64, 120)
LONG = 100


def _bench(
    piece: int,
    prefill_lengths: Sequence[int],
    *,
    rows: Sequence[int],
    beams: Sequence[int],
    compile_cache: CompileCache,
) -> Bench:
    """An engine with few graphs; those without beam search are ready."""
    lanes = tuple(
        LaneLadders(
            beams=width,
            decode_rows=Ladder(tuple(rows)),
            decode_lengths=Ladder((LENGTH,)),
        )
        for width in beams
    )
    ladders = Ladders(
        prefill_lengths=Ladder(tuple(prefill_lengths)),
        prefill_rows=Ladder(tuple(rows)),
        prefill_batch_tokens=PIECE,
        prefill_piece=piece,
        lanes=lanes,
    )
    bench = Bench(
        {MODEL: GOLDENS / MODEL}, ladders=lambda **_: ladders, compile_cache=compile_cache
    )
    bench.make_all_ready(MODEL, [1])
    return bench


@pytest.fixture(scope="module")
def bench(kept_compilations: CompileCache) -> Iterator[Bench]:
    """Two slots; prompts are read in pieces of PIECE tokens."""
    bench = _bench(
        PIECE, PREFILL_LENGTHS, rows=[1, 2], beams=[1, 2], compile_cache=kept_compilations
    )
    yield bench
    assert not bench.defects


@pytest.fixture(scope="module")
def whole(kept_compilations: CompileCache) -> Bench:
    """An engine that reads prompts whole."""
    return _bench(LENGTH, [120], rows=[1], beams=[1], compile_cache=kept_compilations)


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


def _prompt(length: int, first: int = 0) -> list[int]:
    return [(first + 7 * place) % 97 for place in range(length)]


def _together(bench: Bench, lane: LaneScheduler, *requests: dict[str, Any]) -> list[Collected]:
    """Submits requests that are admitted in the same turn."""
    with bench.admission_held(MODEL, lane.beams):
        return [bench.submit(MODEL, **request) for request in requests]


def _alone(bench: Bench, *requests: dict[str, Any]) -> list[list[int]]:
    runs = []
    for request in requests:
        run = bench.submit(MODEL, **request)
        run.wait()
        runs.append(run.token_ids)
    return runs


def _finish(runs: Sequence[Collected]) -> list[list[int]]:
    for run in runs:
        run.wait()
    return [run.token_ids for run in runs]


def _served(run: Collected, kind: GraphKind) -> dict[tuple[int, int], int]:
    """Calls of the graphs of a kind that served a run, by rows and length."""
    return {
        (use.served.rows, use.served.length): use.calls
        for use in run.run.uses.values()
        if use.served.kind is kind
    }


def _graph(bench: Bench, kind: GraphKind, rows: int, length: int, *, beams: int = 1) -> Graph:
    signature = Signature(model=MODEL, kind=kind, beams=beams, rows=rows, length=length)
    return bench.parts.graphs.request_compile(signature, urgent=False)


# --- Prompts together ---------------------------------------------------------------------------

SHORT = [{"prompt": _prompt(3), "max_new_tokens": 8}, {"prompt": _prompt(16), "max_new_tokens": 8}]


def test_waiting_prompts_of_one_rung_are_read_in_one_call(
    bench: Bench, lane: LaneScheduler
) -> None:
    alone = _alone(bench, *SHORT)
    runs = _together(bench, lane, *SHORT)
    assert _finish(runs) == alone
    assert [_served(run, GraphKind.PREFILL) for run in runs] == [{(2, 16): 1}] * 2
    assert [run.run.padded_prompt_tokens for run in runs] == [16, 16]


def test_prompts_are_read_one_by_one_while_the_graph_for_both_is_not_ready(
    bench: Bench, lane: LaneScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = _graph(bench, GraphKind.PREFILL, 2, 16)
    monkeypatch.setattr(graph, "state", GraphState.COMPILING)
    alone = _alone(bench, *SHORT)
    runs = _together(bench, lane, *SHORT)
    assert _finish(runs) == alone
    assert [_served(run, GraphKind.PREFILL) for run in runs] == [{(1, 16): 1}] * 2


def test_prompts_of_different_rungs_are_read_separately(bench: Bench, lane: LaneScheduler) -> None:
    requests = [SHORT[0], {"prompt": _prompt(40), "max_new_tokens": 8}]
    alone = _alone(bench, *requests)
    runs = _together(bench, lane, *requests)
    assert _finish(runs) == alone
    served = [_served(run, GraphKind.PREFILL) for run in runs]
    assert served == [{(1, 16): 1}, {(1, 64): 2}]


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
        request = {"prompt": _prompt(length), "max_new_tokens": 7}
        expected = _alone(whole, request)
        run = bench.submit(MODEL, **request)
        run.wait()
        assert (length, [run.token_ids]) == (length, expected)
        (calls,) = _served(run, GraphKind.PREFILL).values()
        assert (length, calls) == (length, math.ceil(length / PIECE))


def _price_reads(patch: pytest.MonkeyPatch, lane: LaneScheduler, *, seconds: float) -> None:
    """Makes a lane believe that each piece of a prompt takes this long to read."""
    read = lane.reader.read
    patch.setattr(lane.reader, "read", lambda runs: None if read(runs) is None else seconds)


def _while_read(calls: list[Call], one: Collected) -> list[Call]:
    """The calls from the first piece of a run's prompt to its last."""
    pieces = [
        index
        for index, call in enumerate(calls)
        if call.signature.kind is GraphKind.PREFILL and one.run in call.runs
    ]
    return calls[pieces[0] : pieces[-1] + 1]


def _generated(call: Call, one: Collected) -> int:
    """Tokens that a run had before a call."""
    return call.generated[call.runs.index(one.run)]


def _kinds(calls: list[Call]) -> list[GraphKind]:
    return [call.signature.kind for call in calls]


PIECE_READ, CHUNK = GraphKind.PREFILL, GraphKind.DECODE


@pytest.mark.parametrize(
    ("turn", "expected"),
    [(1e-10, [*[PIECE_READ, CHUNK] * 3, PIECE_READ]), (scheduler.TURN_SECONDS, [PIECE_READ] * 4)],
    ids=["owed a turn after each piece", "owed none"],
)
def test_streams_get_chunks_between_pieces_of_a_prompt_once_they_are_owed_a_turn(
    bench: Bench,
    lane: LaneScheduler,
    monkeypatch: pytest.MonkeyPatch,
    turn: float,
    expected: list[GraphKind],
) -> None:
    requests = [
        {"prompt": [5], "max_new_tokens": 120},
        {"prompt": _prompt(120), "max_new_tokens": 4},
    ]
    alone = _alone(bench, *requests)
    # Pieces take hardly any time here, and one chunk takes longer.
    _price_reads(monkeypatch, lane, seconds=1e-9)
    monkeypatch.setattr(scheduler, "TURN_SECONDS", turn)
    calls = record_calls(monkeypatch)
    stream, late = _together(bench, lane, *requests)
    assert _finish([stream, late]) == alone
    assert _kinds(_while_read(calls, late)) == expected


@pytest.mark.parametrize(
    ("left", "expected"),
    [(0.4e-10, [PIECE_READ, PIECE_READ]), (0.6e-10, [PIECE_READ, CHUNK, PIECE_READ])],
    ids=["soon", "not soon"],
)
def test_a_turn_of_streams_waits_for_the_last_prompts_if_they_are_read_soon(
    bench: Bench,
    lane: LaneScheduler,
    monkeypatch: pytest.MonkeyPatch,
    left: float,
    expected: list[GraphKind],
) -> None:
    requests = [
        {"prompt": [5], "max_new_tokens": 120},
        {"prompt": _prompt(2 * PIECE), "max_new_tokens": 4},
    ]
    alone = _alone(bench, *requests)
    # After one piece, the stream is owed a third of its time, 1.33 turns. A chunk takes longer.
    monkeypatch.setattr(scheduler, "TURN_SECONDS", 1e-10)
    _price_reads(monkeypatch, lane, seconds=4e-10)
    monkeypatch.setattr(lane.covers, "reading_seconds", lambda _: left)
    calls = record_calls(monkeypatch)
    stream, late = _together(bench, lane, *requests)
    assert _finish([stream, late]) == alone
    assert _kinds(_while_read(calls, late)) == expected


def test_the_time_left_to_read_a_prompt_is_that_of_its_unread_pieces(
    bench: Bench, lane: LaneScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = record_calls_left(monkeypatch, bench, lane)
    _finish([bench.submit(MODEL, _prompt(120), max_new_tokens=1)])
    assert left == [4, 3, 2, 1]


def test_first_tokens_do_not_wait_for_the_prompts_of_others(
    bench: Bench, lane: LaneScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    _price_reads(monkeypatch, lane, seconds=1e-9)
    calls = record_calls(monkeypatch)
    # Of different rungs, so that one is read after the other.
    first, second = _together(
        bench,
        lane,
        {"prompt": _prompt(4), "max_new_tokens": 9},
        {"prompt": _prompt(120), "max_new_tokens": 9},
    )
    _finish([first, second])
    reads = [index for index, call in enumerate(calls) if call.signature.kind is PIECE_READ]
    between = calls[reads[0] + 1 : reads[1]]
    assert [(call.signature.kind, call.runs) for call in between] == [(CHUNK, [first.run])]
    assert _kinds(calls[reads[1] : reads[-1] + 1]) == [PIECE_READ] * 4


def test_a_turn_of_several_calls_takes_as_long_as_one(
    bench: Bench, lane: LaneScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    best, asked = lane.covers.best_decode, list[float]()
    monkeypatch.setattr(lane.covers, "best_decode", lambda runs: best(runs[:1]))

    def chunk_steps(_: Graph, seconds: float) -> int:
        asked.append(seconds)
        return 1

    monkeypatch.setattr(lane, "chunk_steps", chunk_steps)
    _finish(_together(bench, lane, *[{"prompt": _prompt(4), "max_new_tokens": 4}] * 2))
    assert set(asked) == {scheduler.CHUNK_SECONDS / 2}


def test_a_prompt_waits_until_streams_have_had_their_share_of_the_device(
    bench: Bench, lane: LaneScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = [
        {"prompt": [5], "max_new_tokens": 120},
        {"prompt": _prompt(120), "max_new_tokens": 4},
    ]
    alone = _alone(bench, *requests)
    _price_reads(monkeypatch, lane, seconds=3600.0)
    calls = record_calls(monkeypatch)
    stream, late = _together(bench, lane, *requests)
    assert _finish([stream, late]) == alone
    kinds = _kinds(_while_read(calls, late))
    chunks = len(kinds) - 4
    assert kinds == [PIECE_READ, *[CHUNK] * chunks, *[PIECE_READ] * 3]
    # All chunks of the stream except the one after its own prompt.
    assert chunks == sum(_served(stream, GraphKind.DECODE).values()) - 1


def test_a_chunk_between_pieces_has_only_the_steps_that_streams_are_owed(
    bench: Bench, lane: LaneScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    _price_reads(monkeypatch, lane, seconds=1e-9)
    monkeypatch.setattr(scheduler, "TURN_SECONDS", 1e-10)
    calls = record_calls(monkeypatch)
    stream, late = _together(
        bench,
        lane,
        {"prompt": [5], "max_new_tokens": 120},
        {"prompt": _prompt(120), "max_new_tokens": 4},
    )
    _finish([stream, late])
    chunks = [call for call in calls if call.signature.kind is CHUNK and stream.run in call.runs]
    steps = {
        id(chunk): _generated(following, stream) - _generated(chunk, stream)
        for chunk, following in pairwise(chunks)
    }
    between = [steps[id(call)] for call in _while_read(calls, late) if id(call) in steps]
    assert between == [1, 1, 1]


def test_a_prompt_does_not_wait_for_streams_that_wait_for_a_compilation(
    bench: Bench, lane: LaneScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = bench.submit(MODEL, [1, 2], max_new_tokens=LONG)
    stream.next()
    with monkeypatch.context() as patch:
        patch.setattr(lane, "decode", lambda _: False)
        patch.setattr(lane, "owed_seconds", 1e9)
        prompt = bench.submit(MODEL, _prompt(16), max_new_tokens=1)
        wait_until(lambda: prompt.run.phase is Phase.DECODE)
    bench.parts.device.wake()
    _finish([stream, prompt])


def test_the_prompt_of_a_cancelled_run_is_read_no_further(
    bench: Bench, lane: LaneScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces: list[Call] = []

    def cancel(call: Call) -> None:
        pieces.append(call)
        if len(pieces) == 2:
            bench.engine.cancel(call.runs[0], MODEL)

    with monkeypatch.context() as patch:
        record_calls(patch, cancel)
        run = bench.submit(MODEL, _prompt(120), max_new_tokens=4)
        wait_until(lambda: run.run.cancelled and lane.active_slots == 0)
    assert _kinds(pieces) == [PIECE_READ] * 2
    assert run.events.empty()
    after = bench.submit(MODEL, _prompt(40), max_new_tokens=4)
    after.wait()
    assert [after.token_ids] == _alone(bench, {"prompt": _prompt(40), "max_new_tokens": 4})


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
    alone = _alone(bench, *requests)
    runs = _together(bench, lane, *requests)
    assert _finish(runs) == alone
    short, long = (_served(run, GraphKind.DECODE) for run in runs)
    assert short.keys() == {(2, LENGTH)}
    assert long.keys() == {(2, LENGTH), (1, LENGTH)}


def test_a_run_that_joins_another_does_not_change_tokens(bench: Bench) -> None:
    requests = [
        {"prompt": [1, 2], "max_new_tokens": LONG},
        {"prompt": _prompt(20), "max_new_tokens": LONG, "do_sample": True, "seed": 4},
    ]
    alone = _alone(bench, *requests)
    first = bench.submit(MODEL, **requests[0])
    first.next()
    second = bench.submit(MODEL, **requests[1])
    assert _finish([first, second]) == alone


def test_caches_exist_only_while_something_runs(
    bench: Bench, lane: LaneScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []

    def measure(call: Call) -> None:
        if call.signature.kind is CHUNK:
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
    requests = [{"prompt": _prompt(4), "max_new_tokens": tokens} for tokens in (4, 4 + left)]
    alone = _alone(bench, *requests)
    calls = record_calls(monkeypatch)
    assert _finish(_together(bench, lane, *requests)) == alone
    assert calls[-1].signature.rows == rows


# --- Beam search beside it ----------------------------------------------------------------------

BEAMS = [
    {"prompt": _prompt(5), "max_new_tokens": 20, "num_beams": 2},
    {"prompt": _prompt(9, 3), "max_new_tokens": 40, "num_beams": 2},
]


def _hypotheses(runs: Sequence[Collected]) -> list[list[list[int]]]:
    for run in runs:
        run.wait()
    return [[list(found.token_ids) for found in run.hypotheses] for run in runs]


def test_beam_search_and_sampling_run_side_by_side(
    bench: Bench, lane: LaneScheduler, beam_lane: LaneScheduler
) -> None:
    sampled = {"prompt": [5, 6], "max_new_tokens": LONG, "do_sample": True, "seed": 3}
    (expected,) = _alone(bench, sampled)
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
    runs = _together(bench, beam_lane, *BEAMS)
    assert _hypotheses(runs) == alone
    short, long = (_served(run, GraphKind.DECODE) for run in runs)
    assert (2, LENGTH) in short
    assert long.keys() == {(2, LENGTH), (1, LENGTH)}
    assert not [event for run in runs for event in run.seen if isinstance(event, NewTokens)]
    assert all(isinstance(run.seen[-1], Ended) for run in runs)
