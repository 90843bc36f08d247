"""A suspect has the device to itself until it gets further, and everybody else only pauses."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from harness.engine import GOLDENS, SLOTS, TIMEOUT, Bench, Collected
from harness.waiting import wait_until
from shaperouter_service.compile_cache import CompileCache
from shaperouter_service.generation.run_events import Isolated, NewTokens, Stalled
from shaperouter_service.graphs import GraphState
from shaperouter_service.routing.signatures import GraphKind, Signature
from shaperouter_service.worker.run import Run
from shaperouter_service.worker.watchdog import Watchdog

MODEL = "gpt2-untied"  # It has no end token: runs last as long as they are told to.
T5_MODEL = "t5-tied"
LONG = 100


@pytest.fixture(scope="module")
def bench(kept_compilations: CompileCache) -> Bench:
    models = {name: GOLDENS / name for name in (MODEL, T5_MODEL)}
    bench = Bench(models, compile_cache=kept_compilations, prefill_piece=16)
    together = bench.engine._graphs.want(
        Signature(model=MODEL, kind=GraphKind.DECODE, rows=SLOTS, length=128, beams=1), urgent=False
    )
    wait_until(lambda: together.state is GraphState.READY, timeout=TIMEOUT)
    return bench


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[list[Run]]:
    """The runs of each call of the device, as they are made."""
    made: list[list[Run]] = []
    watching = Watchdog.watching

    @contextmanager
    def noting(self: Watchdog, signature: Signature, runs: Collection[Run]) -> Iterator[None]:
        made.append(list(runs))
        with watching(self, signature, list(runs)):
            yield

    monkeypatch.setattr(Watchdog, "watching", noting)
    return made


def running(bench: Bench, count: int, **options: Any) -> list[Collected]:
    """Long runs that have their first tokens."""
    runs = [
        bench.submit(MODEL, [7 + index], max_new_tokens=LONG, **options) for index in range(count)
    ]
    for run in runs:
        while not isinstance(run.next(), NewTokens):
            pass
    return runs


def span(calls: list[list[Run]], one: Run, *, until: int | None = None) -> list[list[Run]]:
    """The calls from the first of a run to the last, or to its `until`-th."""
    places = [place for place, runs in enumerate(calls) if one in runs][:until]
    return calls[places[0] : places[-1] + 1]


@pytest.mark.parametrize(
    ("prompt", "pieces"), [(1, 1), (60, 4)], ids=["a short prompt", "a prompt in pieces"]
)
def test_a_suspect_is_alone_until_its_first_token_and_then_runs_with_the_others(
    bench: Bench, calls: list[list[Run]], prompt: int, pieces: int
) -> None:
    others = running(bench, 2)
    suspect = bench.submit(MODEL, [3] * prompt, max_new_tokens=60, suspect=True)
    suspect.wait()
    for other in others:
        other.wait()
    kinds = [type(event) for event in suspect.seen if not isinstance(event, Stalled)]
    assert kinds[:2] == [Isolated, NewTokens]
    assert kinds.count(Isolated) == 1
    # Its prompt, and the step that chooses its first token.
    assert span(calls, suspect.run, until=pieces + 1) == [[suspect.run]] * (pieces + 1)
    assert any(suspect.run in runs and len(runs) > 1 for runs in calls)
    assert [len(run.token_ids) for run in (*others, suspect)] == [LONG, LONG, 60]


def test_suspects_take_turns(bench: Bench, calls: list[list[Run]]) -> None:
    suspects = [bench.submit(MODEL, [5], max_new_tokens=4, suspect=True) for _ in range(3)]
    for suspect in suspects:
        suspect.wait()
    for suspect in suspects:
        assert span(calls, suspect.run, until=2) == [[suspect.run]] * 2
    assert len({tuple(suspect.token_ids) for suspect in suspects}) == 1


def test_a_suspect_with_beams_is_alone_until_its_end(bench: Bench, calls: list[list[Run]]) -> None:
    others = running(bench, 1)
    suspect = bench.submit(MODEL, [3, 4], max_new_tokens=20, num_beams=4, suspect=True)
    suspect.wait()
    others[0].wait()
    assert {tuple(runs) for runs in span(calls, suspect.run)} == {(suspect.run,)}


def test_a_run_that_is_cancelled_beside_a_suspect_leaves_its_queue(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane = bench.engine._lanes[MODEL, 1]
    queued: list[int] = []
    watching = Watchdog.watching

    @contextmanager
    def cancelling(self: Watchdog, signature: Signature, runs: Collection[Run]) -> Iterator[None]:
        if not queued:
            waiting = bench.submit(MODEL, [9], max_new_tokens=1)
            bench.engine.cancel(waiting.run, MODEL)
        queued.append(lane.queued)
        with watching(self, signature, list(runs)):
            yield

    monkeypatch.setattr(Watchdog, "watching", cancelling)
    bench.submit(MODEL, [3, 4], max_new_tokens=20, num_beams=4, suspect=True).wait()
    assert (queued[0], queued[-1]) == (1, 0)


def test_a_suspect_of_another_model_and_with_a_source_makes_the_same_tokens(bench: Bench) -> None:
    others = running(bench, 2)
    found = []
    for suspect in (False, True):
        run = bench.submit(
            T5_MODEL, [0], source=[5, 6, 7], max_new_tokens=8, suspect=suspect, seed=3
        )
        run.wait()
        found.append(run.token_ids)
    assert found[0] == found[1]
    for other in others:
        other.wait()


def test_a_cancelled_suspect_lets_the_others_go_on(bench: Bench) -> None:
    others = running(bench, 2)
    suspect = bench.submit(MODEL, [3] * 60, max_new_tokens=60, suspect=True)
    while not isinstance(suspect.next(), Isolated):
        pass
    bench.engine.cancel(suspect.run, MODEL)
    for other in others:
        other.wait()
