"""A worker that starts is settled once it has what the other workers have loaded."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shaperouter_service.errors import StartupError
from shaperouter_service.routing.deployments import Deployment, Orders, Revision
from shaperouter_service.worker import repository as repository_module
from shaperouter_service.worker.repository import ModelRepository


class FakeEngine:
    """Loads any model, whose first graphs are ready once `warm_up.is_done`, or raises `error`."""

    def __init__(self) -> None:
        self.warm = True
        self.warm_up = SimpleNamespace(failed_covers=[], is_done=False)
        self.error: Exception | None = None

    def load(self, name: str, directory: Path, digest: str) -> Any:
        if self.error:
            raise self.error
        return self.warm_up

    def unload(self, name: str) -> None:
        raise NotImplementedError

    def is_used(self, name: str) -> bool:
        return True

    def idle_seconds(self, name: str) -> float:
        return 0.0


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def worker(engine: FakeEngine, tmp_path: Path) -> ModelRepository:
    (tmp_path / "tuned").mkdir()
    (tmp_path / "tuned/config.json").write_text("{}")
    started_with = {"gpt2": tmp_path / "tuned"}
    return ModelRepository(engine, tmp_path, started_with, lambda: None)


@pytest.fixture
def told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repository_module, "ORDERED_WITHIN", 0.0)


def _orders() -> Orders:
    revision = Revision(model="gpt2@1234", location="tuned", digest="1234")
    deployment = Deployment(name="gpt2", version=1, revisions=(revision,))
    return Orders(router="router", deployments=(deployment,), held=())


def test_a_worker_waits_for_routers_to_find_it(
    worker: ModelRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not worker.settled
    monkeypatch.setattr(repository_module, "FOUND_WITHIN", 0.0)
    assert worker.settled


def test_a_worker_waits_for_the_orders_of_the_router_that_found_it(
    worker: ModelRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    with worker.watched_by("router"):
        assert not worker.settled
        # However late it was found.
        monkeypatch.setattr(repository_module, "FOUND_WITHIN", 0.0)
        assert not worker.settled


def test_a_worker_without_orders_has_all(worker: ModelRepository, told_at_once: None) -> None:
    with worker.watched_by("router"):
        assert worker.settled


def test_a_worker_waits_until_what_was_ordered_is_ready(
    worker: ModelRepository, engine: FakeEngine, told_at_once: None
) -> None:
    with worker.watched_by("router"):
        worker.order(_orders())
        assert not worker.settled
        asyncio.run(worker.follow())
        assert not worker.settled
        engine.warm_up.is_done = True
        asyncio.run(worker.follow())
        assert worker.settled


def test_a_worker_that_cannot_load_what_was_ordered_is_not_settled(
    worker: ModelRepository, engine: FakeEngine, told_at_once: None
) -> None:
    engine.error = StartupError("damaged")
    with worker.watched_by("router"):
        worker.order(_orders())
        asyncio.run(worker.follow())
        assert not worker.settled
