"""Watchers see every change, and many changes wake the event loop once."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from shaperouter_service.worker import server
from shaperouter_service.worker.server import Changes


class Loop:
    """Counts how often it is woken."""

    def __init__(self) -> None:
        self.woken = 0

    def call_soon_threadsafe(self, call: Callable[[], None]) -> None:
        self.woken += 1
        asyncio.get_running_loop().call_soon(call)


@pytest.fixture(autouse=True)
def no_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "WATCH_INTERVAL", 0)


async def _looks_after_changes(loop: Any) -> None:
    changes = Changes(loop)
    first, second = changes.watch(), changes.watch()
    for watch in (first, second):
        await anext(watch)
    for count in range(1, 4):
        for _ in range(5):
            changes.notify()
        assert loop.woken == count
        # Each watcher sees every change, in whichever order they look.
        await anext(second)
        await anext(first)


def test_many_changes_wake_the_loop_once_and_every_watcher_sees_them() -> None:
    asyncio.run(asyncio.wait_for(_looks_after_changes(Loop()), 30))


async def _sees_changes_after_the_close(loop: Any) -> None:
    changes = Changes(loop)
    routers, metrics = changes.watch(), changes.watch(until_closed=False)
    for watch in (routers, metrics):
        await anext(watch)
    changes.close()
    with pytest.raises(StopAsyncIteration):
        await anext(routers)
    await anext(metrics)
    changes.notify()
    await anext(metrics)


def test_a_worker_that_stops_sees_its_own_changes_but_routers_do_not() -> None:
    asyncio.run(asyncio.wait_for(_sees_changes_after_the_close(Loop()), 30))
