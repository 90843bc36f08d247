"""Processes of local workers, and what keeps them alive."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from harness.fake_process import FakeProcess, FakeProcesses
from harness.logs import capture_logs
from harness.router import wait_until
from harness.waiting import TIMEOUT
from shaperouter_service.errors import StartupError
from shaperouter_service.roles.serve import LocalWorkers
from shaperouter_service.rpc.heartbeat import HEARTBEAT, MISSED_HEARTBEATS
from shaperouter_service.supervision import WorkerProcesses, reason_of_end, worker_process


def test_a_worker_that_cannot_start_as_configured_ends_the_supervision(sockets: Path) -> None:
    async def act() -> None:
        fakes = FakeProcesses()
        processes = WorkerProcesses(["worker-0"], sockets, fakes.make)
        supervision = asyncio.create_task(processes.supervise())
        await wait_until(lambda: bool(fakes.started))
        await fakes.started[0].die(78)
        with pytest.raises(StartupError, match="worker-0 could not start"):
            await supervision

    asyncio.run(act())


@pytest.mark.parametrize("at_first", [True, False])
def test_a_process_that_the_system_has_no_room_for_is_tried_again(
    sockets: Path, monkeypatch: pytest.MonkeyPatch, at_first: bool
) -> None:
    monkeypatch.setattr(worker_process, "FIRST_BACKOFF", 0.001)
    refusals = 2

    def at_birth(_: FakeProcess) -> None:
        nonlocal refusals
        if (at_first or fakes.started) and refusals:
            refusals -= 1
            raise BlockingIOError("Resource temporarily unavailable")

    async def act() -> None:
        async with asyncio.timeout(TIMEOUT):
            worker = fakes.make("worker-0", f"unix:{sockets / 'worker-0'}")
            supervision = asyncio.create_task(worker.supervise())
            await wait_until(lambda: len(told("worker started")) == 1)
            if not at_first:
                await fakes.started[0].die()
                await wait_until(lambda: len(told("worker started")) == 2)
            assert not supervision.done()
            supervision.cancel()
            await fakes.close()

    def told(event: str) -> list[Any]:
        return [line for line in lines if line["event"] == event]

    fakes = FakeProcesses()
    fakes.at_birth = at_birth
    with capture_logs() as lines:
        asyncio.run(act())
    first, second = told("worker not started")
    assert first["reason"] == "Resource temporarily unavailable"
    assert second["retry_seconds"] == 2 * first["retry_seconds"]


@pytest.mark.parametrize(
    ("hang_timeout", "silence"), [(1.0, MISSED_HEARTBEATS * HEARTBEAT), (30.0, 30.0)]
)
def test_a_worker_may_be_silent_for_some_heartbeats_however_soon_a_call_has_hung(
    hang_timeout: float, silence: float
) -> None:
    workers = LocalWorkers(count=1, arguments=(), gpus=[], hang_timeout=hang_timeout)
    assert workers.silence == silence


@pytest.mark.parametrize(
    ("code", "told"), [(3, "exit code 3"), (-9, "SIGKILL"), (-40, "signal 40")]
)
def test_any_end_of_a_process_can_be_told(code: int, told: str) -> None:
    assert reason_of_end(code) == told
