"""Workers that are lost, restarted or stopped while they load a model."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.loads import load, make_repository, restart
from harness.waiting import TIMEOUT
from shaperouter.v1 import model_pb2
from shaperouter_service.edge.inference.stubs.grpc_service_pb2 import RepositoryIndexRequest
from shaperouter_service.edge.inference.stubs.grpc_service_pb2_grpc import GRPCInferenceServiceStub
from shaperouter_service.serving import rollout

if TYPE_CHECKING:
    from harness.fake_worker import FakeWorker
    from harness.router import Play, Router

Until = Callable[[Callable[[], bool]], Awaitable[None]]


@pytest.fixture
def settings(tmp_path: Path, checkpoint: Path) -> dict[str, Any]:
    return {"repository": make_repository(tmp_path, checkpoint)}


async def loading_on(worker: FakeWorker, router: Router) -> asyncio.Future[model_pb2.Model]:
    """A load in progress on this worker, as the router knows; `loading_ends` lets it end."""
    worker.loading_ends.clear()
    loading = asyncio.ensure_future(load(router, "tiny-2"))
    index = GRPCInferenceServiceStub(router.channel).RepositoryIndex
    state = ""
    while state != "LOADING":
        models = (await index(RepositoryIndexRequest(), timeout=TIMEOUT)).models
        state = next((each.state for each in models if each.name == "tiny-2"), "")
    return loading


def test_a_worker_that_is_silent_while_it_loads_may_return(
    play: Play, settings: dict[str, Any], until: Until
) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        loading = await loading_on(worker, router)
        worker.freeze()
        await until(lambda: router.metric("workers") == 0)
        worker.loading_ends.set()
        worker.thaw()
        assert (await loading).ready_workers == 1

    play(scenario, settings=settings)


def test_a_worker_that_is_lost_while_it_loads_fails_a_load_after_a_time(
    play: Play, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollout, "RETURN_SECONDS", 0.0)

    async def scenario(router: Router, worker: FakeWorker) -> None:
        loading = await loading_on(worker, router)
        worker.freeze()
        error = await router.error(loading)
        assert "worker-0 was lost while it loaded it" in str(error.details())

    play(scenario, settings=settings)


def test_a_worker_that_restarts_while_it_loads_fails_a_load(
    play: Play, settings: dict[str, Any]
) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        loading = await loading_on(worker, router)
        await restart(worker)
        error = await router.error(loading)
        assert "worker-0 was lost while it loaded it" in str(error.details())

    play(scenario, settings=settings)


def test_a_worker_that_is_stopped_while_it_loads_leaves_the_load_to_the_others(
    play: Play, settings: dict[str, Any], until: Until
) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        loading = await loading_on(workers[0], router)
        await workers[0].drain()
        await until(lambda: router.metric("workers") == 1)
        assert (await loading).ready_workers == 1

    play(scenario, workers=2, settings=settings)
