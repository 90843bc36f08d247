"""Loops of a worker that report and save continue after an error."""

import asyncio
import threading
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from harness.waiting import TIMEOUT
from shaperouter_service.roles import worker


class _Servicer:
    """Its first snapshot cannot be made."""

    settled = True

    def __init__(self) -> None:
        self.failed = False

    async def snapshots(self, *, until_drain: bool) -> AsyncIterator[Any]:
        if not self.failed:
            self.failed = True
            raise MemoryError
        while True:
            yield SimpleNamespace(warm=True)
            await asyncio.Event().wait()


def test_a_worker_is_observed_again_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "OBSERVE_AGAIN", 0.0)

    async def observe() -> list[Any]:
        ready, seen = asyncio.Event(), list[Any]()
        health: Any = SimpleNamespace(set_ready=lambda _: ready.set())
        metrics: Any = SimpleNamespace(observe=seen.append)
        servicer: Any = _Servicer()
        async with (
            asyncio.timeout(TIMEOUT),
            worker._observed(servicer, metrics, health, asyncio.Event()),
        ):
            await ready.wait()
        return seen

    assert asyncio.run(observe()) == [SimpleNamespace(warm=True)]


def test_the_record_is_saved_again_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "RECORD_INTERVAL", 0.0)
    saves: list[str] = []
    saved_again = threading.Event()

    def save() -> None:
        saves.append("")
        if len(saves) == 1:
            raise MemoryError
        saved_again.set()

    async def record() -> None:
        engine: Any = SimpleNamespace(save_record=save)
        async with worker._recorded(engine):
            assert await asyncio.to_thread(saved_again.wait, TIMEOUT)

    asyncio.run(record())
