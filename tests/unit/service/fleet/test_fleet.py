"""The fleet: the current process of each worker, and what is kept of earlier ones."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from harness.fake_link import FakeLink
from harness.fake_worker import FakeWorker
from harness.routing import SLOTS
from harness.waiting import TIMEOUT
from shaperouter_service.errors import NoWorkerInTimeError, QueueFullError, RelayedError
from shaperouter_service.fleet import Fleet, OverloadGuard, WorkerLink, connections
from shaperouter_service.fleet.link import Loss
from shaperouter_service.generation.resolution import neutral_options
from shaperouter_service.generation.run_request import RunRequest
from shaperouter_service.routing.catalog import Catalog, WorkerId
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.routing.served_model import ServedModel
from shaperouter_service.routing.snapshots import LaneReport, Snapshot
from shaperouter_service.rpc.status import from_status, to_status
from shaperouter_service.telemetry.fleet import FleetMetrics

Until = Callable[[Callable[[], bool]], Awaitable[None]]

REQUEST = RunRequest(
    model="tiny", token_ids=[1], options=neutral_options(max_new_tokens=9, num_beams=1)
)


class Lives(Catalog):
    """A catalog that records the workers that it should forget."""

    def __init__(self) -> None:
        super().__init__(["tiny"])
        self.lost: list[WorkerId] = []

    def lose(self, worker: WorkerId) -> None:
        self.lost.append(worker)
        super().lose(worker)


@contextlib.asynccontextmanager
async def started(directory: Path) -> AsyncIterator[FakeWorker]:
    """A worker that serves."""
    worker = FakeWorker("worker-0", directory / "worker-0", ["tiny"])
    await worker.start()
    try:
        yield worker
    finally:
        await worker.kill()


@contextlib.asynccontextmanager
async def following(*addresses: str, catalog: Catalog) -> AsyncIterator[Fleet]:
    """A fleet that follows workers at these addresses."""
    fleet = Fleet(
        catalog, metrics=FleetMetrics(CollectorRegistry()), overload=OverloadGuard(TIMEOUT)
    )
    async with asyncio.timeout(TIMEOUT), fleet.connected():
        fleet.set_addresses(addresses)
        yield fleet


def test_a_run_that_learns_late_of_its_workers_end_leaves_the_new_life_alone(
    sockets: Path, until: Until
) -> None:
    async def scenario() -> None:
        catalog = Lives()
        async with started(sockets) as worker, following(worker.address, catalog=catalog) as fleet:
            await until(lambda: bool(catalog.workers("tiny")))
            (first,) = catalog.workers("tiny")
            run = fleet.run(REQUEST, None)
            await anext(run)
            await worker.kill()
            await worker.start()
            await until(lambda: catalog.workers("tiny") not in ([], [first]))
            # Only now the caller, who was slow, asks for more.
            await anext(run)
            assert catalog.lost == [first]
            await run.aclose()

    asyncio.run(scenario())


def test_nothing_is_kept_of_an_address_that_is_let_go(sockets: Path, until: Until) -> None:
    async def scenario() -> None:
        catalog = Lives()
        async with started(sockets) as worker, following(worker.address, catalog=catalog) as fleet:
            other = await worker.also_at(sockets / "other")
            await until(lambda: bool(catalog.workers("tiny")))
            told = worker.told
            fleet.set_addresses([worker.address, other])
            await until(lambda: worker.told > told)
            fleet.set_addresses([worker.address])
            await until(lambda: linked(worker.address, other) == [worker.address])

    asyncio.run(scenario())


def reported(worker: str, max_length: int) -> Snapshot:
    """A worker with a model of this limit."""
    ladders = Ladders.default(max_length=max_length, slots=SLOTS)
    model = ServedModel(name="tiny", max_length=max_length, slots=SLOTS, ladders=ladders)
    lanes = [
        LaneReport(model="tiny", beams=lane.beams, total_slots=SLOTS) for lane in ladders.lanes
    ]
    return Snapshot(worker=worker, incarnation="1", models=[model], lanes=lanes, warm=True)


@pytest.mark.parametrize("loses", [True, False])
def test_a_run_that_is_too_long_for_the_other_workers_waits_or_gets_the_refusal(
    monkeypatch: pytest.MonkeyPatch, until: Until, *, loses: bool
) -> None:
    monkeypatch.setattr(connections, "WorkerLink", FakeLink)
    request = dataclasses.replace(REQUEST, options=neutral_options(max_new_tokens=500, num_beams=1))

    async def scenario() -> None:
        async with following("long", "short", catalog=Catalog(["tiny"])) as fleet:
            long, short = fleet._watching
            assert isinstance(long, FakeLink)
            assert isinstance(short, FakeLink)
            long.report(reported("long", 1024))
            short.report(reported("short", 64))
            deadline = asyncio.get_running_loop().time() + 2.0
            run = asyncio.ensure_future(anext(fleet.run(request, deadline)))
            await until(lambda: bool(long.runs))
            if loses:
                long.interrupt(Loss.LOST)
                long.lose(Loss.LOST)
            else:
                long.runs[0].send(from_status(to_status(QueueFullError("tiny", 1))))
            with pytest.raises(NoWorkerInTimeError if loses else RelayedError):
                await run
            assert not short.runs

    asyncio.run(scenario())


def linked(*addresses: str) -> list[str]:
    """Those of these addresses to which anything refers to a link; other tests have others."""
    gc.collect()
    links = (each for each in gc.get_objects() if isinstance(each, WorkerLink))
    return [link.address for link in links if link.address in addresses]
