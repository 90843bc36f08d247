"""Every run ends and frees its resources, with any options and whenever its caller leaves."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.engine import GOLDENS, Bench, Collected, few_rungs
from harness.waiting import wait_until
from shaperouter_service.compile_cache import CompileCache
from shaperouter_service.errors import QueueFullError
from shaperouter_service.worker.run import Ended

MODEL = "gpt2-untied"  # It has no end token, so runs reach their maximum length.
MAX_LENGTH = 128
QUEUE = 6


@dataclass(frozen=True)
class Asked:
    """A run, and after how many events its caller leaves; None means never."""

    prompt: int
    new_tokens: int
    num_beams: int
    gives_up_after: int | None


def _asked() -> st.SearchStrategy[Asked]:
    lengths = st.integers(1, MAX_LENGTH - 1).flatmap(
        lambda prompt: st.tuples(st.just(prompt), st.integers(1, min(40, MAX_LENGTH - prompt)))
    )
    return st.builds(
        lambda both, beams, patience: Asked(*both, beams, patience),
        lengths,
        st.sampled_from([1, 1, 2]),
        st.none() | st.integers(0, 3),
    )


@pytest.fixture(scope="module")
def bench(kept_compilations: CompileCache) -> Iterator[Bench]:
    bench = Bench(
        {MODEL: GOLDENS / MODEL},
        slots=2,
        queue_limit=QUEUE,
        ladders=few_rungs,
        compile_cache=kept_compilations,
    )
    yield bench
    assert not bench.defects


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(asked=st.lists(_asked(), min_size=1, max_size=12))
def test_every_admitted_run_ends_with_the_expected_length(bench: Bench, asked: list[Asked]) -> None:
    admitted: list[tuple[Asked, Collected]] = []
    for one in asked:
        try:
            run = bench.submit(
                MODEL,
                [1] * one.prompt,
                max_new_tokens=one.new_tokens,
                num_beams=one.num_beams,
            )
        except QueueFullError:
            continue
        if one.gives_up_after == 0:
            bench.engine.cancel(run.run, MODEL)
        admitted.append((one, run))
    for one, run in admitted:
        if one.gives_up_after is None:
            run.wait()
            assert len(run.token_ids) == one.new_tokens
        elif one.gives_up_after > 0:
            _read(run, events=one.gives_up_after)
            bench.engine.cancel(run.run, MODEL)
    wait_until(lambda: _is_idle(bench))


def _read(run: Collected, *, events: int) -> None:
    """Reads this many events, or all of them."""
    for _ in range(events):
        if isinstance(run.next(), Ended):
            return


def _is_idle(bench: Bench) -> bool:
    lanes = bench.engine.snapshot("w", "i").lanes
    return all(lane.active_slots == lane.queued == lane.backlog_tokens == 0 for lane in lanes)
