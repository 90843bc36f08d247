"""Watchers see every change, urgent ones at once, and many changes wake the event loop once."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from shaperouter_service.worker import server
from shaperouter_service.worker.server import Changes

# More turns of the event loop than an urgent change needs.
TICKS = 20


class Loop:
    """Counts how often it is woken."""

    def __init__(self) -> None:
        self.woken = 0

    def call_soon_threadsafe(self, call: Callable[[], None]) -> None:
        self.woken += 1
        asyncio.get_running_loop().call_soon(call)


@pytest.fixture
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


@pytest.mark.usefixtures("no_interval")
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


@pytest.mark.usefixtures("no_interval")
def test_a_worker_that_stops_sees_its_own_changes_but_routers_do_not() -> None:
    asyncio.run(asyncio.wait_for(_sees_changes_after_the_close(Loop()), 30))


async def _sees_urgent_changes(notify: Callable[[Changes], None]) -> None:
    changes = Changes(asyncio.get_running_loop())
    watch = changes.watch(until_closed=False)
    await anext(watch)
    # An ordinary change waits for the end of the interval, and does not hide the urgent one.
    changes.notify()
    look = asyncio.ensure_future(anext(watch))
    for _ in range(TICKS):
        await asyncio.sleep(0)
    assert not look.done()
    notify(changes)
    await look
    await watch.aclose()


@pytest.mark.parametrize(
    "notify",
    [lambda changes: changes.notify(at_once=True), Changes.close],
    ids=["urgent change", "close"],
)
def test_urgent_changes_do_not_wait_for_the_end_of_the_interval(
    notify: Callable[[Changes], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "WATCH_INTERVAL", 3600)
    asyncio.run(asyncio.wait_for(_sees_urgent_changes(notify), 30))
