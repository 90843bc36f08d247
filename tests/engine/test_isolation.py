"""A suspect run has the device to itself until its next token; the other runs only pause."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from harness.device_calls import Call, record_calls
from harness.engine import GOLDENS, SLOTS, TIMEOUT, Bench, Collected
from harness.waiting import wait_until
from shaperouter_service.compile_cache import CompileCache
from shaperouter_service.decoding import Options
from shaperouter_service.generation.run_events import Isolated, NewTokens, Stalled
from shaperouter_service.graphs import Graph, GraphState
from shaperouter_service.routing.signatures import GraphKind, Signature
from shaperouter_service.worker.isolation import participants
from shaperouter_service.worker.run import Event, Phase, Run, Timings

MODEL = "gpt2-untied"  # It has no end token, so runs generate all their tokens.
T5_MODEL = "t5-tied"
LONG = 100


@pytest.fixture(scope="module")
def bench(kept_compilations: CompileCache) -> Bench:
    models = {name: GOLDENS / name for name in (MODEL, T5_MODEL)}
    bench = Bench(models, compile_cache=kept_compilations, prefill_piece=16)
    # So that no run waits for a graph while the others go on.
    graphs = [
        bench.parts.graphs.request_compile(
            Signature(model=MODEL, kind=GraphKind.DECODE, rows=rows, length=length, beams=beams),
            urgent=False,
        )
        for rows, length, beams in ((SLOTS, 128, 1), (1, 512, 4))
    ]
    wait_until(lambda: all(graph.state is GraphState.READY for graph in graphs), timeout=TIMEOUT)
    return bench


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """The calls of the device, as they are made."""
    return record_calls(monkeypatch)


def among_others(
    bench: Bench, submit: Callable[[], Collected], *, others: int = 2
) -> tuple[Collected, list[Collected]]:
    """Submits a run when some others have their first tokens, and waits for the others.

    It does so between two calls of the device: however slow the test is, the others have not ended.

    Returns:
        The run, which may not have ended, and the others.
    """
    started: list[Collected] = []
    submitted: list[Collected] = []

    def submit_once(_: Call) -> None:
        if not submitted and all(other.run.generated for other in started):
            submitted.append(submit())

    with pytest.MonkeyPatch.context() as patch:
        record_calls(patch, submit_once)
        with bench.admission_held(MODEL):
            started += [
                bench.submit(MODEL, [7 + index], max_new_tokens=LONG) for index in range(others)
            ]
        for other in started:
            other.wait()
    return submitted[0], started


def span(calls: list[Call], one: Run, *, until: int | None = None) -> list[Sequence[Run]]:
    """The runs of each call from the first of a run to its last, or to its `until`-th."""
    places = [place for place, call in enumerate(calls) if one in call.runs][:until]
    return [call.runs for call in calls[places[0] : places[-1] + 1]]


@pytest.mark.parametrize(
    ("prompt", "pieces"), [(1, 1), (60, 4)], ids=["a short prompt", "a prompt in pieces"]
)
def test_a_suspect_is_alone_until_its_first_token(
    bench: Bench, calls: list[Call], prompt: int, pieces: int
) -> None:
    suspect, others = among_others(
        bench, lambda: bench.submit(MODEL, [3] * prompt, max_new_tokens=60, suspect=True)
    )
    suspect.wait()
    kinds = [type(event) for event in suspect.seen if not isinstance(event, Stalled)]
    assert kinds[:2] == [Isolated, NewTokens]
    assert kinds.count(Isolated) == 1
    # Its prompt, and the step that chooses its first token.
    assert span(calls, suspect.run, until=pieces + 1) == [[suspect.run]] * (pieces + 1)
    assert any(suspect.run in call.runs and len(call.runs) > 1 for call in calls)
    assert [len(run.token_ids) for run in (*others, suspect)] == [LONG, LONG, 60]


def test_suspects_take_turns(bench: Bench, calls: list[Call]) -> None:
    suspects = [bench.submit(MODEL, [5], max_new_tokens=4, suspect=True) for _ in range(3)]
    for suspect in suspects:
        suspect.wait()
    for suspect in suspects:
        assert span(calls, suspect.run, until=2) == [[suspect.run]] * 2
    assert len({tuple(suspect.token_ids) for suspect in suspects}) == 1


def test_a_suspect_with_beams_is_alone_until_its_end(bench: Bench, calls: list[Call]) -> None:
    suspect, _ = among_others(
        bench,
        lambda: bench.submit(MODEL, [3, 4], max_new_tokens=20, num_beams=4, suspect=True),
        others=1,
    )
    suspect.wait()
    assert {tuple(runs) for runs in span(calls, suspect.run)} == {(suspect.run,)}


def make_run(*, suspect: bool) -> tuple[Run, list[Event]]:
    """A run with beam search that has begun to decode, and its events."""
    events: list[Event] = []
    run = Run(
        request_id="r",
        client="c",
        lane_beams=4,
        token_ids=[1],
        max_new_tokens=5,
        eos_token_ids=(),
        num_beams=4,
        num_return_sequences=1,
        logprobs=None,
        options=Options.neutral(),
        emit=events.append,
        timings=Timings(arrived=0.0),
        suspect=suspect,
    )
    run.phase = Phase.DECODE
    return run, events


def test_a_suspect_that_has_stalled_is_alone_from_its_next_chunk() -> None:
    (suspect, events), (other, _) = make_run(suspect=True), make_run(suspect=False)
    graph = Graph(Signature(model=MODEL, kind=GraphKind.DECODE, rows=1, length=512, beams=4))
    assert participants([suspect, other], ()) == [suspect]
    graph.state = GraphState.COMPILING
    suspect.stall(graph, 0.0)
    assert participants([suspect, other], ()) == [suspect, other]
    graph.state = GraphState.READY
    # The device has not called the graph yet, so nothing has ended the stall.
    assert suspect.stalled_on is not None
    assert participants([suspect, other], ()) == [suspect]
    assert [type(event) for event in events] == [Isolated, Stalled, Isolated]


def test_a_run_cancelled_while_a_suspect_is_isolated_leaves_the_queue(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane = bench.parts.lanes[MODEL, 1]
    queued: list[int] = []

    def cancel(_: Call) -> None:
        if not queued:
            waiting = bench.submit(MODEL, [9], max_new_tokens=1)
            bench.engine.cancel(waiting.run, MODEL)
        queued.append(lane.queued)

    record_calls(monkeypatch, cancel)
    bench.submit(MODEL, [3, 4], max_new_tokens=20, num_beams=4, suspect=True).wait()
    assert (queued[0], queued[-1]) == (1, 0)


@pytest.mark.parametrize("suspect", [False, True], ids=["not suspected", "suspect"])
def test_a_model_with_an_encoder_generates_the_same_tokens(bench: Bench, suspect: bool) -> None:
    def submit(**options: Any) -> Collected:
        return bench.submit(T5_MODEL, [0], source=[5, 6, 7], max_new_tokens=8, seed=3, **options)

    alone = submit()
    alone.wait()
    run, _ = among_others(bench, lambda: submit(suspect=suspect))
    run.wait()
    assert run.token_ids == alone.token_ids


def test_the_others_continue_when_a_suspect_is_cancelled(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancelled: list[Run] = []

    def cancel_the_suspect(call: Call) -> None:
        for run in call.runs:
            if run.suspect and run not in cancelled:
                cancelled.append(run)
                bench.engine.cancel(run, MODEL)

    record_calls(monkeypatch, cancel_the_suspect)
    suspect, others = among_others(
        bench, lambda: bench.submit(MODEL, [3] * 60, max_new_tokens=60, suspect=True)
    )
    assert cancelled == [suspect.run]
    assert [len(other.token_ids) for other in others] == [LONG, LONG]
