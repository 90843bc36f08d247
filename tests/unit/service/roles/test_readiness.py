"""A router reports its readiness after every change, also after one that could not be reported."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

from prometheus_client import CollectorRegistry

from harness.waiting import TIMEOUT
from shaperouter_service.roles.readiness import readiness
from shaperouter_service.telemetry.fleet import FleetMetrics


class _Health:
    """Notes the readiness, after failing once."""

    def __init__(self) -> None:
        self.ready = asyncio.Event()
        self.failed = asyncio.Event()

    def set_ready(self, ready: bool) -> None:
        if ready and not self.failed.is_set():
            self.failed.set()
            raise MemoryError
        (self.ready.set if ready else self.ready.clear)()


class _Fleet:
    """Changes when the test says so."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()

    async def changes(self) -> AsyncIterator[None]:
        while True:
            yield
            await self.changed.wait()
            self.changed.clear()


def test_a_router_becomes_ready_with_the_next_change_after_an_error() -> None:
    async def report() -> None:
        health, fleet = _Health(), _Fleet()
        models: Any = SimpleNamespace(ready=True, ready_workers=lambda: {"m": 1})
        metrics = FleetMetrics(CollectorRegistry())
        async with asyncio.timeout(TIMEOUT), readiness(health, fleet, models, metrics, ":50051"):
            await health.failed.wait()
            fleet.changed.set()
            await health.ready.wait()

    asyncio.run(report())
