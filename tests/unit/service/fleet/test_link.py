"""The connection to one worker: attempts that fail, and answers that never arrive."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from harness.fake_worker import FakeWorker
from harness.logs import capture_logs
from harness.waiting import TIMEOUT
from shaperouter_service.errors import WorkerLostError
from shaperouter_service.fleet import WorkerLink, link
from shaperouter_service.fleet.link import Loss, RunInterruptedError
from shaperouter_service.generation.resolution import neutral_options
from shaperouter_service.generation.run_events import NewTokens, RunEvent
from shaperouter_service.generation.run_request import RunRequest
from shaperouter_service.routing.snapshots import Snapshot

Until = Callable[[Callable[[], bool]], Awaitable[None]]

REQUEST = RunRequest(model="tiny", token_ids=[1], options=neutral_options())


def watch(
    worker: FakeWorker,
    on_snapshot: Callable[[WorkerLink, Snapshot], None],
    scenario: Callable[[WorkerLink], Awaitable[None]],
) -> None:
    """Plays a scenario with a connection to a worker that serves."""

    async def act() -> None:
        await worker.start()
        connection = WorkerLink(
            worker.address,
            on_message=lambda _: None,
            on_snapshot=on_snapshot,
            on_lost=lambda *_: None,
        )
        task = asyncio.create_task(connection.watch())
        async with asyncio.timeout(TIMEOUT):
            await scenario(connection)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await connection.close()
        await worker.kill()

    asyncio.run(act())


@pytest.fixture
def worker(sockets: Path) -> FakeWorker:
    return FakeWorker("worker-0", sockets / "worker-0", ["tiny"])


def test_a_worker_that_is_never_understood_is_asked_ever_less_often_and_told_once(
    worker: FakeWorker, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "FIRST_RETRY", 0.01)
    monkeypatch.setattr(link, "LAST_RETRY", 0.04)
    attempts: list[float] = []

    def misunderstand(*_: object) -> None:
        attempts.append(asyncio.get_running_loop().time())
        raise ValueError("it makes no sense")

    async def scenario(_: WorkerLink) -> None:
        await until(lambda: len(attempts) == 5)

    with capture_logs() as logs:
        watch(worker, misunderstand, scenario)
    pauses = [after - before for before, after in itertools.pairwise(attempts)]
    least = (0.01, 0.02, 0.04, 0.04)
    assert all(pause >= one for pause, one in zip(pauses, least, strict=True))
    told = [entry for entry in logs if entry["event"] == "handling a worker's message failed"]
    assert len(told) == 1


def test_a_worker_that_was_understood_is_asked_again_at_once_and_its_loss_told(
    worker: FakeWorker, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "LAST_RETRY", TIMEOUT)
    lives: list[str] = []

    def understand(_: WorkerLink, snapshot: Snapshot) -> None:
        lives.append(snapshot.incarnation)

    async def scenario(_: WorkerLink) -> None:
        # If each loss doubled the pause, the last would be as long as the test may take.
        for life in range(1, 8):
            await until(lambda life=life: len(set(lives)) == life)
            await worker.kill()
            await worker.start()
        await until(lambda: len(set(lives)) == 8)

    with capture_logs() as logs:
        watch(worker, understand, scenario)
    assert [entry["event"] for entry in logs] == 7 * ["worker lost"]


def test_a_wish_under_way_when_the_connection_is_closed_is_lost_and_cancels_nobody(
    worker: FakeWorker, until: Until
) -> None:
    worker.before_compile_request = worker.hold

    async def scenario(connection: WorkerLink) -> None:
        pending = asyncio.create_task(connection.request_compile([]))
        await until(lambda: bool(worker.wanted))
        await connection.close()
        with pytest.raises(WorkerLostError):
            await pending

    watch(worker, lambda *_: None, scenario)


@pytest.mark.parametrize("loss", [Loss.DRAINING, Loss.LOST])
def test_a_run_that_ends_without_a_reason_has_that_of_the_watching(
    worker: FakeWorker, until: Until, loss: Loss, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The end of the watching may arrive late on a busy machine.
    monkeypatch.setattr(link, "VERDICT_TIMEOUT", TIMEOUT)
    known: list[WorkerLink] = []
    worker.script = [WorkerLostError(worker.name)]

    async def scenario(connection: WorkerLink) -> None:
        await until(lambda: bool(known))
        run = asyncio.create_task(anext(connection.run(REQUEST, TIMEOUT)))
        await until(lambda: bool(worker.requests) and not worker.running)
        await (worker.drain() if loss is Loss.DRAINING else worker.kill())
        with pytest.raises(RunInterruptedError) as found:
            await run
        assert found.value.loss is loss

    watch(worker, lambda connection, _: known.append(connection), scenario)


def test_a_run_that_ends_without_a_reason_on_a_worker_that_stays_is_lost(
    worker: FakeWorker, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "VERDICT_TIMEOUT", 0.05)
    known: list[WorkerLink] = []
    worker.script = [WorkerLostError(worker.name)]

    async def scenario(connection: WorkerLink) -> None:
        await until(lambda: bool(known))
        with pytest.raises(RunInterruptedError) as found:
            await anext(connection.run(REQUEST, TIMEOUT))
        assert found.value.loss is Loss.LOST

    watch(worker, lambda connection, _: known.append(connection), scenario)


def test_events_that_nobody_reads_are_held_back_and_hold_up_no_other_run(
    worker: FakeWorker, until: Until
) -> None:
    known: list[WorkerLink] = []
    expected = list(range(1, 101))
    worker.script = [*map(worker.tokens, expected), worker.completion()]

    async def scenario(connection: WorkerLink) -> None:
        await until(lambda: bool(known))
        slow = connection.run(REQUEST, None)
        events = [await anext(slow)]
        other = [event async for event in connection.run(REQUEST, None)]
        assert tokens_of(other) == expected
        assert connection.running == 1
        events += [event async for event in slow]
        assert tokens_of(events) == expected
        # What was held back came together.
        assert len(events) < len(expected)

    watch(worker, lambda connection, _: known.append(connection), scenario)


def tokens_of(events: Sequence[RunEvent]) -> list[int]:
    """The tokens of a run's events."""
    return [token for each in events if isinstance(each, NewTokens) for token in each.token_ids]
