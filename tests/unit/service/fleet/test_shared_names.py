"""Two workers with the same name, one of which gets no requests, are logged."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from harness.fake_worker import FakeWorker
from harness.logs import capture_logs
from harness.router import wait_until
from harness.waiting import TIMEOUT
from shaperouter_service.fleet import Fleet, OverloadGuard, shared_names, warning_of_shared_names
from shaperouter_service.routing.catalog import Catalog
from shaperouter_service.telemetry.fleet import FleetMetrics

EVENT = "workers share a name: only one is given requests; set --name of each"

Scenario = Callable[[list[FakeWorker], list[Any]], Awaitable[None]]


def play(sockets: Path, scenario: Scenario, *worker_names: str) -> list[Any]:
    """Plays a scenario with connected workers, and returns the log lines about their names."""

    async def act() -> None:
        catalog = Catalog(["tiny"])
        fleet = Fleet(
            catalog, metrics=FleetMetrics(CollectorRegistry()), overload=OverloadGuard(30.0)
        )
        workers = [
            FakeWorker(name, sockets / f"worker-{index}", ["tiny"])
            for index, name in enumerate(worker_names)
        ]
        for worker in workers:
            await worker.start()
        async with asyncio.timeout(TIMEOUT), fleet.connected(), warning_of_shared_names(fleet):
            fleet.set_addresses([worker.address for worker in workers])
            await wait_until(lambda: len(fleet.incarnations()) == len(workers))
            await scenario(workers, lines)
        for worker in workers:
            await worker.kill()

    with capture_logs() as lines:
        asyncio.run(act())
    return [line for line in lines if line["event"] == EVENT]


async def all_tell_again(workers: list[FakeWorker], _: list[Any]) -> None:
    """Makes each worker report twice, so that earlier reports have been processed."""
    for worker in [*workers, *workers]:
        before = worker.told
        await worker.change()
        await wait_until(lambda worker=worker, before=before: worker.told > before)


def test_workers_with_the_same_name_are_logged_once_with_their_addresses(
    sockets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_names, "SETTLED", 0.0)

    async def scenario(workers: list[FakeWorker], lines: list[Any]) -> None:
        await wait_until(lambda: any(line["event"] == EVENT for line in lines))
        await all_tell_again(workers, lines)

    (line,) = play(sockets, scenario, "gpu-box", "gpu-box")
    assert line["worker"] == "gpu-box"
    assert line["addresses"] == [f"unix:{sockets / f'worker-{index}'}" for index in range(2)]


def test_a_quick_replacement_of_a_worker_is_not_logged(sockets: Path) -> None:
    assert play(sockets, all_tell_again, "gpu-box", "gpu-box") == []


def test_workers_with_different_names_are_not_logged(
    sockets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_names, "SETTLED", 0.0)
    assert play(sockets, all_tell_again, "box:1", "box:2") == []
