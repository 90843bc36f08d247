"""A router reports workers that it cannot replace itself."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from harness.local_workers import Local
from harness.logs import capture_logs
from harness.router import wait_until
from harness.waiting import TIMEOUT
from shaperouter_service.fleet import warning_of_spent_budgets


def test_a_router_says_once_of_each_life_that_a_restart_would_help(sockets: Path) -> None:
    async def act() -> None:
        local = Local(sockets, 1)
        async with (
            asyncio.timeout(TIMEOUT),
            local.running(1),
            warning_of_spent_budgets(local.fleet),
        ):
            (first,) = local.started
            for _ in range(3):
                told = first.worker.told
                await local.spend(first)
                await wait_until(lambda before=told: first.worker.told > before)
            await first.die()
            await wait_until(lambda: len(local.started) == 2)
            await wait_until(lambda: bool(local.catalog.views()))
            await local.spend(local.started[1])
            await wait_until(lambda: len(spent()) == 2)

    def spent() -> list[Any]:
        return [line for line in lines if line["event"].startswith("worker's budget is spent")]

    with capture_logs() as lines:
        asyncio.run(act())
    assert [line["worker"] for line in spent()] == ["worker-0", "worker-0"]
