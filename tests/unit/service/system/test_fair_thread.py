"""FairThread: clients take turns, waiting work is bounded, and cancelled work never starts."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from harness.waiting import TIMEOUT
from shaperouter_service.errors import TextQueueFullError
from shaperouter_service.system.fair_thread import FairThread
from shaperouter_service.system.process import NICE

LIMIT = 1000
# Seconds; only a failure waits so long.


class Work:
    """Jobs that note when they run, behind one that blocks the thread until it is released."""

    def __init__(self, thread: FairThread) -> None:
        self.done: list[str] = []
        self._thread = thread
        self._started, self._released = threading.Event(), threading.Event()

    async def occupy(self, client: str = "occupant", size: int = 1) -> asyncio.Task[None]:
        """Keeps the thread busy until `release`."""

        def wait() -> None:
            self._started.set()
            assert self._released.wait(TIMEOUT)

        task = asyncio.create_task(self._thread.run(client, size, wait))
        assert await asyncio.to_thread(self._started.wait, TIMEOUT)
        return task

    async def ask(self, client: str, *sizes: int) -> list[asyncio.Task[None]]:
        """Queues jobs of a client, in order."""
        tasks = [
            asyncio.create_task(self._thread.run(client, size, lambda: self.done.append(client)))
            for size in sizes
        ]
        await asyncio.sleep(0)
        return tasks

    def release(self) -> None:
        self._released.set()


@contextmanager
def releasing(work: Work) -> Iterator[Work]:
    """Releases the thread at the end, or a failed test would wait for it."""
    try:
        yield work
    finally:
        work.release()


def run(scenario: Callable[[Work], Awaitable[None]], *, limit: int = LIMIT) -> None:
    async def act() -> None:
        with releasing(Work(FairThread("test", limit=limit, low_priority=False))) as work:
            async with asyncio.timeout(TIMEOUT):
                await scenario(work)

    asyncio.run(act())


async def finish(work: Work, *tasks: asyncio.Task[None]) -> Sequence[str]:
    work.release()
    await asyncio.gather(*tasks, return_exceptions=True)
    return work.done


def test_the_caller_gets_the_result_or_the_exception() -> None:
    def fail() -> None:
        raise ValueError("wrong")

    async def act() -> None:
        thread = FairThread("test", limit=LIMIT, low_priority=False)
        assert await thread.run("a", 1, lambda: 42) == 42
        with pytest.raises(ValueError, match="wrong"):
            await thread.run("a", 1, fail)
        assert await thread.run("a", 1, lambda: 43) == 43

    asyncio.run(act())


def test_a_heavy_client_waits_behind_a_light_one() -> None:
    async def scenario(work: Work) -> None:
        occupant = await work.occupy("much", 100)
        much = await work.ask("much", 100, 100)
        little = await work.ask("little", 10, 10)
        done = await finish(work, occupant, *much, *little)
        assert done == ["little", "little", "much", "much"]

    run(scenario)


def test_equal_clients_take_turns() -> None:
    async def scenario(work: Work) -> None:
        occupant = await work.occupy()
        tasks = [*await work.ask("a", 10, 10, 10), *await work.ask("b", 10, 10, 10)]
        assert await finish(work, occupant, *tasks) == ["a", "b"] * 3

    run(scenario)


def test_work_of_long_ago_does_not_count_against_a_client() -> None:
    async def scenario(work: Work) -> None:
        for task in await work.ask("old", 400, 400):
            await task
        for task in await work.ask("other", 1, 1):
            await task
        occupant = await work.occupy()
        tasks = [*await work.ask("old", 10), *await work.ask("new", 10)]
        assert (await finish(work, occupant, *tasks))[-2:] == ["old", "new"]

    run(scenario)


def test_work_cancelled_while_it_waits_never_starts() -> None:
    async def scenario(work: Work) -> None:
        occupant = await work.occupy()
        (gone,) = await work.ask("a", 10)
        (stays,) = await work.ask("b", 10)
        gone.cancel()
        assert await finish(work, occupant, gone, stays) == ["b"]

    run(scenario)


def test_the_thread_stays_busy_until_abandoned_work_ends() -> None:
    async def scenario(work: Work) -> None:
        occupant = await work.occupy()
        (waits,) = await work.ask("a", 10)
        occupant.cancel()
        await asyncio.gather(occupant, return_exceptions=True)
        assert occupant.cancelled()
        assert work.done == []
        assert await finish(work, waits) == ["a"]

    run(scenario)


def test_a_turn_granted_to_a_cancelled_caller_passes_on() -> None:
    async def scenario(work: Work) -> None:
        occupant = await work.occupy()
        (first,) = await work.ask("a", 10)
        (second,) = await work.ask("b", 10)
        # As soon as the first has its turn, before it can use it.
        occupant.add_done_callback(lambda _: first.cancel())
        await finish(work, occupant, first, second)
        assert work.done[-1] == "b"

    run(scenario)


def test_a_turn_passes_on_if_the_thread_cannot_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def scenario() -> None:
        thread = FairThread("test", limit=LIMIT, low_priority=False)
        with monkeypatch.context() as without_threads:
            without_threads.setattr(threading.Thread, "start", fail)
            with pytest.raises(RuntimeError, match="can't start new thread"):
                await thread.run("a", 1, int)
        assert await asyncio.wait_for(thread.run("a", 1, lambda: 7), TIMEOUT) == 7

    asyncio.run(scenario())


def test_one_client_alone_may_use_half_of_the_queue() -> None:
    async def scenario(work: Work) -> None:
        occupant = await work.occupy()
        tasks = await work.ask("a", 300, 200)
        (refused,) = await work.ask("a", 1)
        with pytest.raises(TextQueueFullError, match="limit 500 characters of one client"):
            await refused
        tasks += await work.ask("b", 10)
        assert await finish(work, occupant, *tasks) == ["a", "b", "a"]

    run(scenario)


def test_work_over_the_limit_of_all_clients_is_refused() -> None:
    async def scenario(work: Work) -> None:
        occupant = await work.occupy()
        tasks = [*await work.ask("a", 500), *await work.ask("b", 500)]
        (refused,) = await work.ask("c", 1)
        with pytest.raises(TextQueueFullError, match="limit 1000 characters;"):
            await refused
        await finish(work, occupant, *tasks)

    run(scenario)


def test_work_larger_than_the_limit_runs_if_nothing_waits() -> None:
    async def scenario(work: Work) -> None:
        occupant = await work.occupy()
        tasks = await work.ask("a", LIMIT + 1)
        assert await finish(work, occupant, *tasks) == ["a"]

    run(scenario)


@pytest.mark.parametrize(("low_priority", "nice"), [(False, 0), (True, NICE)])
def test_the_thread_has_the_requested_priority(low_priority: bool, nice: int) -> None:
    def priority() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    async def act() -> int:
        thread = FairThread("test", limit=LIMIT, low_priority=low_priority)
        return await thread.run("a", 1, priority)

    assert asyncio.run(act()) == min(priority() + nice, 19)
