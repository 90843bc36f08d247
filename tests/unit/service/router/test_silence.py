"""Runs of silent workers continue on others until the workers report again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import pytest

from harness import fake_worker
from harness.holding import TOKENS, busy, hold_after, resumed
from harness.router import deltas, read_events
from shaperouter_service.fleet import link
from shaperouter_service.rpc.heartbeat import MISSED_HEARTBEATS

if TYPE_CHECKING:
    from harness.fake_worker import FakeWorker
    from harness.router import Play, Router

Until = Callable[[Callable[[], bool]], Awaitable[None]]


@pytest.fixture
def quick_hearts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers are heard from often, and given up soon."""
    monkeypatch.setattr(fake_worker, "HEARTBEAT", 0.02)
    monkeypatch.setattr(link, "HEARTBEAT", 1.0)


@pytest.mark.usefixtures("quick_hearts")
def test_runs_of_a_worker_that_falls_silent_go_on_elsewhere(play: Play) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        hold_after(2, *workers)
        call = router.stream()
        events = [await call.read(), await call.read()]
        silent, (other,) = busy(*workers)
        silent.freeze()
        other.released.set()
        rest, end = await read_events(call)
        assert [token for d in deltas([*events, *rest]) for token in d.token_ids] == TOKENS
        assert end.completion.worker == other.name
        assert resumed(router, "hung") == 1

    play(scenario, workers=2)


@pytest.mark.usefixtures("quick_hearts")
def test_a_worker_that_was_silent_is_used_again_and_its_old_runs_are_cancelled(
    play: Play, until: Until
) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        hold_after(1, *workers)
        call = router.stream()
        await call.read()
        silent, (other,) = busy(*workers)
        silent.freeze()
        other.released.set()
        await read_events(call)
        assert silent.running == 1
        silent.thaw()
        await until(lambda: silent.cancelled == 1 and silent.running == 0)
        await until(lambda: router.free_slots == 2 * fake_worker.SLOTS)
        await other.kill()
        silent.released.set()
        assert (await router.generate()).completion.worker == silent.name

    play(scenario, workers=2)


@pytest.mark.usefixtures("quick_hearts")
def test_a_worker_that_only_has_nothing_new_to_tell_is_kept(play: Play, until: Until) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        hold_after(1, worker)
        call = router.stream()
        await call.read()
        heard = worker.told
        await until(lambda: worker.told > heard + 100 * MISSED_HEARTBEATS)
        worker.released.set()
        await read_events(call)
        assert resumed(router, "hung") == 0

    play(scenario)
