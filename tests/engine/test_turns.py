"""The prompts that a lane reads and the streams that it continues share the device."""

from collections.abc import Iterator
from itertools import pairwise

import pytest

from harness.device_calls import Call, record_calls, record_calls_left
from harness.engine import Bench, Collected
from harness.few_graphs import (
    LONG,
    MODEL,
    PIECE,
    finish,
    prompt_of,
    served,
    together,
    tokens_alone,
    two_slots,
)
from harness.waiting import wait_until
from shaperouter_service.compile_cache import CompileCache
from shaperouter_service.graphs import Graph
from shaperouter_service.routing.signatures import GraphKind
from shaperouter_service.worker import scheduler
from shaperouter_service.worker.run import Phase
from shaperouter_service.worker.scheduler import LaneScheduler


@pytest.fixture(scope="module")
def bench(kept_compilations: CompileCache) -> Iterator[Bench]:
    bench = two_slots(kept_compilations)
    yield bench
    assert not bench.defects


@pytest.fixture
def lane(bench: Bench) -> LaneScheduler:
    return bench.parts.lanes[MODEL, 1]


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
        {"prompt": prompt_of(120), "max_new_tokens": 4},
    ]
    alone = tokens_alone(bench, *requests)
    # Pieces take hardly any time here, and one chunk takes longer.
    _price_reads(monkeypatch, lane, seconds=1e-9)
    monkeypatch.setattr(scheduler, "TURN_SECONDS", turn)
    calls = record_calls(monkeypatch)
    stream, late = together(bench, lane, *requests)
    assert finish([stream, late]) == alone
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
        {"prompt": prompt_of(2 * PIECE), "max_new_tokens": 4},
    ]
    alone = tokens_alone(bench, *requests)
    # After one piece, the stream is owed a third of its time, 1.33 turns. A chunk takes longer.
    monkeypatch.setattr(scheduler, "TURN_SECONDS", 1e-10)
    _price_reads(monkeypatch, lane, seconds=4e-10)
    monkeypatch.setattr(lane.covers, "reading_seconds", lambda _: left)
    calls = record_calls(monkeypatch)
    stream, late = together(bench, lane, *requests)
    assert finish([stream, late]) == alone
    assert _kinds(_while_read(calls, late)) == expected


def test_the_time_left_to_read_a_prompt_is_that_of_its_unread_pieces(
    bench: Bench, lane: LaneScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = record_calls_left(monkeypatch, bench, lane)
    finish([bench.submit(MODEL, prompt_of(120), max_new_tokens=1)])
    assert left == [4, 3, 2, 1]


def test_first_tokens_do_not_wait_for_the_prompts_of_others(
    bench: Bench, lane: LaneScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    _price_reads(monkeypatch, lane, seconds=1e-9)
    calls = record_calls(monkeypatch)
    # Of different rungs, so that one is read after the other.
    first, second = together(
        bench,
        lane,
        {"prompt": prompt_of(4), "max_new_tokens": 9},
        {"prompt": prompt_of(120), "max_new_tokens": 9},
    )
    finish([first, second])
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
    finish(together(bench, lane, *[{"prompt": prompt_of(4), "max_new_tokens": 4}] * 2))
    assert set(asked) == {scheduler.CHUNK_SECONDS / 2}


def test_a_prompt_waits_until_streams_have_had_their_share_of_the_device(
    bench: Bench, lane: LaneScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = [
        {"prompt": [5], "max_new_tokens": 120},
        {"prompt": prompt_of(120), "max_new_tokens": 4},
    ]
    alone = tokens_alone(bench, *requests)
    _price_reads(monkeypatch, lane, seconds=3600.0)
    calls = record_calls(monkeypatch)
    stream, late = together(bench, lane, *requests)
    assert finish([stream, late]) == alone
    kinds = _kinds(_while_read(calls, late))
    chunks = len(kinds) - 4
    assert kinds == [PIECE_READ, *[CHUNK] * chunks, *[PIECE_READ] * 3]
    # All chunks of the stream except the one after its own prompt.
    assert chunks == sum(served(stream, GraphKind.DECODE).values()) - 1


def test_a_chunk_between_pieces_has_only_the_steps_that_streams_are_owed(
    bench: Bench, lane: LaneScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    _price_reads(monkeypatch, lane, seconds=1e-9)
    monkeypatch.setattr(scheduler, "TURN_SECONDS", 1e-10)
    calls = record_calls(monkeypatch)
    stream, late = together(
        bench,
        lane,
        {"prompt": [5], "max_new_tokens": 120},
        {"prompt": prompt_of(120), "max_new_tokens": 4},
    )
    finish([stream, late])
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
        prompt = bench.submit(MODEL, prompt_of(16), max_new_tokens=1)
        wait_until(lambda: prompt.run.phase is Phase.DECODE)
    bench.parts.device.wake()
    finish([stream, prompt])


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
        run = bench.submit(MODEL, prompt_of(120), max_new_tokens=4)
        wait_until(lambda: run.run.cancelled and lane.active_slots == 0)
    assert _kinds(pieces) == [PIECE_READ] * 2
    assert run.events.empty()
    after = bench.submit(MODEL, prompt_of(40), max_new_tokens=4)
    after.wait()
    assert [after.token_ids] == tokens_alone(bench, {"prompt": prompt_of(40), "max_new_tokens": 4})
