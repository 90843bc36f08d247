"""Processes of local workers, and what keeps them alive."""

import asyncio
from pathlib import Path

import pytest

from harness.fake_process import FakeProcesses
from harness.router import wait_until
from shaperouter_service.errors import StartupError
from shaperouter_service.fleet import WorkerProcesses


def test_a_worker_that_cannot_start_as_configured_ends_the_supervision(sockets: Path) -> None:
    async def act() -> None:
        fakes = FakeProcesses()
        processes = WorkerProcesses(["worker-0"], sockets, fakes.make)
        supervision = asyncio.create_task(processes.supervise())
        await wait_until(lambda: bool(fakes.started))
        await fakes.started[0].die(78)
        with pytest.raises(StartupError, match="worker-0 cannot start"):
            await supervision

    asyncio.run(act())
