"""The router's side of models that come and go."""

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import pytest

from shaperouter_service.routing.deployments import Deployment, Revision
from shaperouter_service.serving import repository
from shaperouter_service.serving.repository import Repository


def deployment(name: str, *locations: str) -> Deployment:
    revisions = [
        Revision.of(name, digest=location.ljust(64, "0"), location=location, share=1.0)
        for location in locations
    ]
    return Deployment(name=name, version=1, revisions=revisions)


def test_tokenizers_are_kept_while_another_deployment_is_prepared(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A router that has just started follows nothing that would say which are used."""
    waits, goes_on = threading.Event(), threading.Event()

    def load_tokenizer(directory: Path) -> None:
        if directory.name == "canary":
            waits.set()
            assert goes_on.wait(30)

    monkeypatch.setattr(repository, "locate_below", lambda root, location: root / location)
    monkeypatch.setattr(repository, "load_tokenizer", load_tokenizer)
    followed: Sequence[Revision] = ()
    fleet = mock.Mock()
    fleet.catalog.revisions.revisions = lambda: followed
    tokenizers: dict[str, None] = {}
    preparing = Repository(
        fleet,
        mock.Mock(),
        tokenizers,
        metrics=mock.Mock(),
        fleet_metrics=mock.Mock(),
        directory=tmp_path,
    )
    first = deployment("a", "stable", "canary")

    async def scenario() -> None:
        task = asyncio.create_task(preparing.prepare(first))
        await asyncio.to_thread(waits.wait, 30)
        await preparing.prepare(deployment("b", "other"))
        goes_on.set()
        await task

    asyncio.run(scenario())
    assert {revision.model for revision in first.revisions} <= tokenizers.keys()
