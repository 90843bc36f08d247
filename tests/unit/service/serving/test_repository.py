"""The router's side of models that come and go."""

import asyncio
import threading
from pathlib import Path
from unittest import mock

import pytest

from harness.waiting import TIMEOUT
from shaperouter_service.errors import InvalidRequestError, ServiceError, UnknownModelError
from shaperouter_service.routing.catalog import Catalog
from shaperouter_service.routing.deployments import Deployment, Revision
from shaperouter_service.serving import repository
from shaperouter_service.serving.repository import Repository
from shaperouter_service.serving.rollout import Rollout
from shaperouter_service.text import Tokenizer


def deployment(name: str, *locations: str, version: int = 1) -> Deployment:
    revisions = [
        Revision.of(name, digest=location.ljust(64, "0"), location=location, share=1.0)
        for location in locations
    ]
    return Deployment(name=name, version=version, revisions=revisions)


def repository_of(
    catalog: Catalog, tokenizers: dict[str, Tokenizer | None], directory: Path
) -> Repository:
    """The repository of a router that has no workers."""
    return Repository(
        mock.Mock(catalog=catalog, meet_workers=mock.AsyncMock()),
        mock.Mock(),
        tokenizers,
        metrics=mock.Mock(),
        fleet_metrics=mock.Mock(),
        directory=directory,
    )


def test_tokenizers_are_kept_while_another_deployment_is_prepared(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A router that has just started follows nothing that would say which are used."""
    waits, goes_on = threading.Event(), threading.Event()

    def load_tokenizer(directory: Path) -> None:
        if directory.name == "canary":
            waits.set()
            assert goes_on.wait(TIMEOUT)

    monkeypatch.setattr(repository, "locate_below", lambda root, location: root / location)
    monkeypatch.setattr(repository, "load_tokenizer", load_tokenizer)
    tokenizers: dict[str, Tokenizer | None] = {}
    catalog = Catalog([])
    preparing = repository_of(catalog, tokenizers, tmp_path)
    first = deployment("a", "stable", "canary")

    async def scenario() -> None:
        task = asyncio.create_task(preparing.prepare(first))
        await asyncio.to_thread(waits.wait, 30)
        for version, location in enumerate(("other", "newer"), start=1):
            await preparing.prepare(other := deployment("b", location, version=version))
            catalog.follow(other)
        goes_on.set()
        await task

    asyncio.run(scenario())
    assert {revision.model for revision in first.revisions} <= tokenizers.keys()


def test_the_tokenizer_of_a_replaced_revision_is_forgotten_once_its_last_request_has_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(repository, "locate_below", lambda root, location: root / location)
    monkeypatch.setattr(repository, "load_tokenizer", lambda _: None)
    catalog = Catalog([])
    tokenizers: dict[str, Tokenizer | None] = {}
    preparing = repository_of(catalog, tokenizers, tmp_path)
    old, new = deployment("a", "old"), deployment("a", "new", version=2)
    names = [each.revisions[0].model for each in (old, new)]

    async def scenario() -> None:
        await preparing.prepare(old)
        catalog.follow(old)
        with catalog.revisions.using(names[0]):
            await preparing.prepare(new)
            catalog.follow(new)
            await asyncio.sleep(0)
            assert list(tokenizers) == names
        await asyncio.sleep(0)
        assert list(tokenizers) == names[1:]
        catalog.follow(deployment("a", version=3))
        await asyncio.sleep(0)
        assert not tokenizers

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("name", "error"), [("a" * 1_000_000, InvalidRequestError), ("unknown", UnknownModelError)]
)
def test_nothing_is_kept_of_a_name_that_cannot_be_unloaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, error: type[ServiceError]
) -> None:
    monkeypatch.setattr(Rollout, "caught_up", mock.AsyncMock())
    changing = repository_of(Catalog(["a"]), {}, tmp_path)
    with pytest.raises(error):
        asyncio.run(changing.unload(name))
    assert not changing._changing
