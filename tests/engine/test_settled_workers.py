"""A worker that starts is settled once it has what the other workers have loaded."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shaperouter_service.errors import StartupError
from shaperouter_service.routing.deployments import Deployment, Orders, Revision, RevisionState
from shaperouter_service.worker import repository as repository_module
from shaperouter_service.worker.repository import ModelRepository


class FakeEngine:
    """Loads any model, whose first graphs are ready once `warm_up.is_done`, or raises `error`."""

    def __init__(self) -> None:
        self.warm = True
        self.warm_up = SimpleNamespace(failed_covers=[], is_done=False)
        self.error: Exception | None = None
        self.used = True
        self.during_load: Callable[[], None] = lambda: None
        self.unloaded: list[str] = []

    def load(self, name: str, directory: Path, digest: str) -> Any:
        self.during_load()
        if self.error:
            raise self.error
        return self.warm_up

    def unload(self, name: str) -> None:
        self.unloaded.append(name)

    def is_used(self, name: str) -> bool:
        return self.used

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


def _orders(*digests: str, version: int = 1) -> Orders:
    revisions = tuple(
        Revision(model=f"gpt2@{digest}", location="tuned", digest=digest)
        for digest in digests or ("1234",)
    )
    deployment = Deployment(name="gpt2", version=version, revisions=revisions)
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


def test_a_revision_that_is_wanted_again_during_a_load_is_not_freed(
    worker: ModelRepository, engine: FakeEngine, told_at_once: None
) -> None:
    engine.warm_up.is_done, engine.used = True, False
    with worker.watched_by("router"):
        worker.order(_orders("1234"))
        asyncio.run(worker.follow())
        worker.order(_orders("5678", version=2))
        engine.during_load = lambda: worker.order(_orders("1234", version=3))
        asyncio.run(worker.follow())
        assert "gpt2@1234" not in engine.unloaded
        assert "gpt2@5678" in engine.unloaded


def test_a_revision_that_loads_at_the_second_attempt_has_no_error(
    worker: ModelRepository, engine: FakeEngine, told_at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repository_module, "FIRST_RETRY", 0.0)
    engine.warm_up.is_done = True

    def fail_once() -> None:
        engine.during_load = lambda: None
        raise StartupError("damaged")

    engine.during_load = fail_once
    with worker.watched_by("router"):
        worker.order(_orders())
        for _ in range(2):
            asyncio.run(worker.follow())
        assert [report.error for report in worker.reports()] == [""]


def test_a_revision_whose_turn_has_not_come_is_reported_as_loading(
    worker: ModelRepository, engine: FakeEngine, told_at_once: None
) -> None:
    engine.warm_up.is_done = True
    with worker.watched_by("router"):
        worker.order(_orders("1234", "5678"))
        assert {report.model: report.state for report in worker.reports()} == {
            "gpt2@1234": RevisionState.LOADING,
            "gpt2@5678": RevisionState.LOADING,
        }
        for _ in range(2):
            asyncio.run(worker.follow())
        assert {report.state for report in worker.reports()} == {RevisionState.READY}


def test_orders_that_arrive_after_their_router_has_left_keep_no_revision(
    worker: ModelRepository, told_at_once: None
) -> None:
    with worker.watched_by("router"):
        pass
    orders = _orders("5678")
    old = Revision(model="gpt2@1234", location="tuned", digest="1234")
    worker.order(dataclasses.replace(orders, held=(old,)))
    assert worker.deployments == [*orders.deployments]
    assert [report.model for report in worker.reports()] == ["gpt2@5678"]
