"""A router dies while it loads a model, and another one takes the load back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from grpc import StatusCode

from harness.loads import load, make_repository, restart, unload
from harness.waiting import TIMEOUT
from shaperouter.v1 import worker_pb2
from shaperouter_service.edge.inference.stubs.grpc_service_pb2 import RepositoryIndexRequest
from shaperouter_service.edge.inference.stubs.grpc_service_pb2_grpc import GRPCInferenceServiceStub
from shaperouter_service.fleet import Fleet
from shaperouter_service.routing.deployments import Deployment
from shaperouter_service.serving import abandoned_loads

if TYPE_CHECKING:
    from harness.fake_worker import FakeWorker
    from harness.router import Play, Router

Until = Callable[[Callable[[], bool]], Awaitable[None]]
# A name and the revisions that serve it.
Told = tuple[str, ...]


@pytest.fixture
def settings(tmp_path: Path, checkpoint: Path) -> dict[str, Any]:
    return {"repository": make_repository(tmp_path, checkpoint)}


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether a deployment looked abandoned, each time that the router looked; it looks often."""
    looked: list[bool] = []
    look = abandoned_loads._looks_abandoned

    def count(fleet: Fleet, deployment: Deployment) -> bool:
        looked.append(look(fleet, deployment))
        return looked[-1]

    monkeypatch.setattr(abandoned_loads, "_looks_abandoned", count)
    monkeypatch.setattr(abandoned_loads, "ABANDONED", 0.2)
    monkeypatch.setattr(abandoned_loads, "INTERVAL", 0.05)
    return looked


# Enough looks for `ABANDONED` to pass.
MANY = 10


def begun(name: str, *serving: str) -> worker_pb2.Deployment:
    """What a router has told workers that was to load tiny-2 beside what serves."""
    revisions = [worker_pb2.Revision(model=model, share=1.0) for model in serving]
    revisions.append(
        worker_pb2.Revision(model=f"{name}@222222222222", digest="2" * 64, location="tiny-2")
    )
    return worker_pb2.Deployment(name=name, version=1, everywhere=True, revisions=revisions)


def models(worker: FakeWorker) -> list[str]:
    return sorted(model.name for model in worker.models)


@pytest.mark.parametrize(
    "told", [("tiny", "tiny"), ("new",)], ids=["beside another", "under a new name"]
)
def test_a_revision_that_nobody_will_serve_is_freed_once_no_worker_loads_it(
    play: Play, settings: dict[str, Any], until: Until, looks: list[bool], told: Told
) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.loading_ends.clear()
        worker.learn(begun(*told))
        await worker.change()
        await until(lambda: len(worker.reports) == 1)
        looks.clear()
        await until(lambda: len(looks) > MANY)
        assert len(worker.reports) == 1
        worker.loading_ends.set()
        await until(lambda: len(models(worker)) == 2)
        await until(lambda: models(worker) == ["tiny"])
        assert (await router.generate(model="tiny")).completion.model == "tiny"

    play(scenario, settings=settings)


def test_a_load_of_this_router_is_left_alone(
    play: Play, settings: dict[str, Any], until: Until, looks: list[bool]
) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        workers[1].loading_ends.clear()
        loading = asyncio.ensure_future(router.error(load(router, "tiny-2")))
        index = GRPCInferenceServiceStub(router.channel).RepositoryIndex
        while "worker-1" not in str(await index(RepositoryIndexRequest(), timeout=TIMEOUT)):
            pass
        # The load waits for the worker's return.
        await workers[1].kill()
        await until(lambda: looks[-MANY:] == MANY * [True])
        assert len(models(workers[0])) == 2
        await restart(workers[1])
        assert "worker-1 was lost while it loaded it" in str((await loading).details())

    play(scenario, workers=2, settings=settings)


def test_what_was_begun_to_load_under_a_new_name_can_be_unloaded(
    play: Play, settings: dict[str, Any], until: Until
) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.learn(begun("new"))
        await worker.change()
        await until(lambda: len(models(worker)) == 2)
        await unload(router, "new")
        await until(lambda: models(worker) == ["tiny"])
        error = await router.error(unload(router, "new"))
        assert error.code() is StatusCode.NOT_FOUND

    play(scenario, settings=settings)
