"""Local workers that are recycled."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from harness.local_workers import FOREVER, Local, Recycle, Scenario, recycling_module
from harness.waiting import TIMEOUT
from shaperouter_service.fleet import recycling


@pytest.fixture
def recycle(sockets: Path, monkeypatch: pytest.MonkeyPatch) -> Recycle:
    """Plays a scenario with local workers that are recycled, without pauses to speak of."""
    monkeypatch.setattr(recycling_module, "INTERVAL", 0.005)

    def play(scenario: Scenario, *, workers: int = 1, grace: float = FOREVER) -> None:
        async def act() -> None:
            local = Local(sockets, workers)
            async with (
                asyncio.timeout(TIMEOUT),
                local.running(workers),
                recycling(local.fleet, local.processes, local.metrics, grace=grace),
            ):
                await scenario(local)

        asyncio.run(act())

    return play
