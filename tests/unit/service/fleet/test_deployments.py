"""A router tells workers which deployments it follows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from prometheus_client import CollectorRegistry

from harness.fake_link import FakeLink
from harness.routing import MODEL
from harness.waiting import TIMEOUT
from shaperouter_service.errors import StartupError
from shaperouter_service.fleet import Fleet, OverloadGuard, connections
from shaperouter_service.fleet.deployments import deploying
from shaperouter_service.fleet.link import Loss
from shaperouter_service.routing.catalog import Catalog
from shaperouter_service.routing.deployments import Deployment, Revision
from shaperouter_service.routing.snapshots import Snapshot
from shaperouter_service.telemetry.fleet import FleetMetrics

Until = Callable[[Callable[[], bool]], Awaitable[None]]


async def prepare(_: Deployment) -> None:
    """The router has all that it needs."""


def snapshot(worker: str) -> Snapshot:
    return Snapshot(worker=worker, incarnation="1", models=[])


def test_a_worker_that_was_lost_meanwhile_is_told_again_by_a_router_that_waits_for_another(
    monkeypatch: pytest.MonkeyPatch, until: Until
) -> None:
    """A worker forgets the orders of a router that no longer watches it."""
    monkeypatch.setattr(connections, "WorkerLink", FakeLink)

    async def scenario() -> None:
        catalog = Catalog([MODEL])
        fleet = Fleet(
            catalog, metrics=FleetMetrics(CollectorRegistry()), overload=OverloadGuard(TIMEOUT)
        )
        async with asyncio.timeout(TIMEOUT), fleet.connected(), deploying(fleet, prepare):
            fleet.set_addresses(["first", "second"])
            first, second = fleet._watching
            assert isinstance(first, FakeLink)
            assert isinstance(second, FakeLink)
            first.report(snapshot("worker-0"))
            second.report(snapshot("worker-1"))
            second.deploys.clear()
            revision = Revision.of(MODEL, digest="d" * 64, location="there", share=1.0)
            fleet.tell(Deployment(name=MODEL, version=1, revisions=[revision]))
            await until(lambda: bool(first.orders and second.orders))
            first.lose(Loss.LOST)
            first.report(snapshot("worker-0"))
            assert len(first.orders) == 1
            second.deploys.set()
            await until(lambda: len(first.orders) == 2)
            assert first.orders[0] == first.orders[1]

    asyncio.run(scenario())


@pytest.mark.parametrize("defect", [StartupError("no files"), RuntimeError("no threads")])
def test_a_model_that_the_router_cannot_prepare_for_keeps_no_other_from_workers(
    monkeypatch: pytest.MonkeyPatch, until: Until, defect: Exception
) -> None:
    monkeypatch.setattr(connections, "WorkerLink", FakeLink)

    async def fail(deployment: Deployment) -> None:
        if deployment.name == "broken":
            raise defect

    async def scenario() -> None:
        catalog = Catalog([MODEL])
        fleet = Fleet(
            catalog, metrics=FleetMetrics(CollectorRegistry()), overload=OverloadGuard(TIMEOUT)
        )
        async with asyncio.timeout(TIMEOUT), fleet.connected(), deploying(fleet, fail):
            fleet.set_addresses(["first"])
            (link,) = fleet._watching
            assert isinstance(link, FakeLink)
            link.report(snapshot("worker-0"))
            for name in ("broken", MODEL):
                revision = Revision.of(name, digest="d" * 64, location="there", share=1.0)
                fleet.tell(Deployment(name=name, version=1, revisions=[revision]))
            await until(lambda: catalog.revisions.deployment(MODEL).version == 1)
            await until(lambda: bool(link.orders))
            assert catalog.revisions.deployment("broken").version == 0

    asyncio.run(scenario())
