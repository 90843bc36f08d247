"""A run whose worker was lost waits for another, but not forever."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import pytest
from grpc import StatusCode

from harness.holding import TOKENS, busy, hold_after, resumed
from harness.router import deltas, read_events
from harness.waiting import TIMEOUT
from shaperouter_service.errors import QueueFullError
from shaperouter_service.fleet import deadlines

if TYPE_CHECKING:
    from harness.fake_worker import FakeWorker
    from harness.router import Play, Router

Until = Callable[[Callable[[], bool]], Awaitable[None]]


def test_a_run_waits_for_the_only_worker_to_come_back(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        hold_after(2, worker)
        call = router.stream()
        events = [await call.read(), await call.read()]
        await worker.kill()
        worker.released.set()
        await worker.start()
        rest, end = await read_events(call)
        assert [token for d in deltas([*events, *rest]) for token in d.token_ids] == TOKENS
        assert end.completion.worker == worker.name

    play(scenario)


@pytest.mark.usefixtures("wide_margins")
def test_a_run_that_waits_for_another_worker_ends_with_its_deadline(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        hold_after(1, worker)
        call = router.stream(timeout=5.0)
        await call.read()
        await worker.kill()
        error = await router.error(call)
        assert error.code() is StatusCode.DEADLINE_EXCEEDED
        assert "the workers that had loaded it were lost" in str(error.details())

    play(scenario)


def test_a_run_that_waits_for_another_worker_can_be_cancelled(play: Play, until: Until) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        hold_after(1, worker)
        call = router.stream()
        await call.read()
        await worker.kill()
        call.cancel()
        await until(lambda: router.metric("requests_total", model="tiny", code="CANCELLED") == 1)
        assert router.metric("num_requests_running", model="tiny") == 0

    play(scenario)


def test_a_full_queue_does_not_end_a_run_that_had_its_place(
    play: Play, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadlines, "QUEUE_PAUSE", 0.01)

    async def scenario(router: Router, *workers: FakeWorker) -> None:
        hold_after(1, *workers)
        call = router.stream()
        first = await call.read()
        lost, (other,) = busy(*workers)
        script, other.script = other.script, [QueueFullError("tiny", 256)]
        await lost.kill()
        await until(lambda: len(other.requests) > 2)
        other.released.set()
        other.script = script
        rest, _ = await read_events(call)
        assert [token for d in deltas([first, *rest]) for token in d.token_ids] == TOKENS
        assert resumed(router, "lost") == 1

    play(scenario, workers=2)


def test_a_full_queue_ends_a_run_whose_deadline_is_near(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadlines, "QUEUE_PAUSE", 2 * TIMEOUT)

    async def scenario(router: Router, *workers: FakeWorker) -> None:
        hold_after(1, *workers)
        call = router.stream(timeout=TIMEOUT)
        await call.read()
        lost, (other,) = busy(*workers)
        other.script = [QueueFullError("tiny", 256)]
        await lost.kill()
        assert (await router.error(call)).code() is StatusCode.RESOURCE_EXHAUSTED

    play(scenario, workers=2)
