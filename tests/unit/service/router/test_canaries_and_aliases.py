"""Requests are shared between revisions, and between models: canaries and aliases."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from grpc import StatusCode

from harness.fake_model import SLOTS, describe_model
from harness.loads import load, make_repository, unload
from harness.waiting import TIMEOUT
from shaperouter.v1 import model_pb2
from shaperouter_service.routing.deployments import Target

if TYPE_CHECKING:
    from harness.fake_worker import FakeWorker
    from harness.router import Play, Router

Until = Callable[[Callable[[], bool]], Awaitable[None]]


@pytest.fixture
def settings(tmp_path: Path, checkpoint: Path) -> dict[str, Any]:
    return {"repository": make_repository(tmp_path, checkpoint)}


async def alias(router: Router, name: str, **shares: float) -> None:
    targets = [model_pb2.Target(model=each, share=share) for each, share in shares.items()]
    await router.models.SetAlias(
        model_pb2.SetAliasRequest(name=name, targets=targets), timeout=TIMEOUT
    )


async def answers(router: Router, model: str, count: int = 40) -> Counter[tuple[str, str]]:
    """The models and revisions that answer several requests."""
    completions = [(await router.generate(model=model)).completion for _ in range(count)]
    return Counter((each.model, each.revision[:12]) for each in completions)


def test_a_canary_gets_its_share_and_is_promoted_or_rolled_back(
    play: Play, settings: dict[str, Any]
) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        stable = (await load(router, "tiny", "tiny-2")).revision[:12]
        model = await load(router, "tiny", "tiny-3", share=0.5)
        both = {each.model: each.share for each in model.targets}
        (canary,) = {each.partition("@")[2] for each in both} - {stable}
        assert both == {f"tiny@{stable}": 0.5, f"tiny@{canary}": 0.5}
        told = {worker.name: len(worker.orders) for worker in workers}
        got = await answers(router, "tiny")
        assert got.keys() == {("tiny", stable), ("tiny", canary)}
        for (name, revision), count in got.items():
            labels = {"model": name, "revision": revision}
            assert router.metric("revision_requests_total", code="OK", **labels) == count
            assert router.metric("revision_request_latency_seconds_count", **labels) == count
        await load(router, "tiny", "tiny-3", share=0.1)
        shares = {each.model: each.share for each in (await load(router, "tiny", "tiny-3")).targets}
        assert shares == {f"tiny@{canary}": 1.0}
        assert (await answers(router, "tiny", 5)).keys() == {("tiny", canary)}
        await load(router, "tiny", "tiny-2", share=0.5)
        await load(router, "tiny", "tiny-3")
        assert (await answers(router, "tiny", 5)).keys() == {("tiny", canary)}
        assert all(len(worker.orders) > told[worker.name] for worker in workers)

    play(scenario, workers=2, settings=settings)


def test_a_canary_that_cannot_be_loaded_changes_nothing(
    play: Play, settings: dict[str, Any]
) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        workers[1].load_failures["tiny-2"] = "no memory"
        error = await router.error(load(router, "tiny", "tiny-2", share=0.5))
        assert error.code() is StatusCode.FAILED_PRECONDITION
        assert (await answers(router, "tiny", 20)).keys() == {("tiny", "")}

    play(scenario, workers=2, settings=settings)


def test_a_canary_that_no_worker_has_any_more_leaves_its_requests_to_the_stable_revision(
    play: Play, settings: dict[str, Any], until: Until
) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        await load(router, "tiny", "tiny-2", share=0.5)
        await worker.kill()
        worker.models = [describe_model("tiny")]
        worker.load_failures["tiny-2"] = "the disk is gone"
        await worker.start()
        await worker.make_first_graphs()
        await until(lambda: router.free_slots == SLOTS)
        assert (await answers(router, "tiny", 20)).keys() == {("tiny", "")}

    play(scenario, settings=settings)


@pytest.mark.parametrize(
    ("location", "share", "says"),
    [
        ("tiny-2", 0.0, "must be a share above 0 and at most 1, got 0"),
        ("tiny-2", 1.5, "must be a share above 0 and at most 1, got 1.5"),
        ("tiny-2", math.nan, "must be a share above 0 and at most 1, got nan"),
        ("tiny-3", 0.5, "this revision of tiny is no canary but the one that serves the rest"),
    ],
)
def test_a_share_that_cannot_be_is_refused(
    play: Play, settings: dict[str, Any], location: str, share: float, says: str
) -> None:
    async def scenario(router: Router, _: FakeWorker) -> None:
        await load(router, "tiny", "tiny-3")
        error = await router.error(load(router, "tiny", location, share))
        assert error.code() is StatusCode.INVALID_ARGUMENT
        assert f"share: {says}" in str(error.details()) or says in str(error.details())
        error = await router.error(load(router, "new", "tiny-2", 0.5))
        assert "no revision of new serves the rest" in str(error.details())

    play(scenario, settings=settings)


def test_an_alias_shares_requests_between_models_until_it_is_removed(
    play: Play, settings: dict[str, Any]
) -> None:
    async def scenario(router: Router, _: FakeWorker) -> None:
        other = (await load(router, "other", "tiny-2")).revision[:12]
        await alias(router, "chat", tiny=1.0)
        assert (await answers(router, "chat", 5)).keys() == {("tiny", "")}
        await alias(router, "chat", tiny=0.5, other=0.5)
        assert (await answers(router, "chat")).keys() == {("tiny", ""), ("other", other)}
        listed = (await router.models.ListModels(model_pb2.ListModelsRequest())).models
        assert [each.name for each in listed] == ["chat", "other", "tiny"]
        assert {each.model: each.share for each in listed[0].targets} == {"tiny": 0.5, "other": 0.5}
        # What a removed model no longer serves, the other one does.
        await unload(router, "other")
        assert (await answers(router, "chat", 20)).keys() == {("tiny", "")}
        await unload(router, "chat")
        error = await router.error(router.generate(model="chat"))
        assert error.code() is StatusCode.NOT_FOUND

    play(scenario, settings=settings)


def test_an_alias_needs_no_repository_and_outlives_a_worker(play: Play, until: Until) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        await alias(router, "chat", tiny=1.0)
        await until(lambda: all(worker.orders for worker in workers))
        await workers[0].kill()
        await router.generate(model="chat")

    play(scenario, workers=2)


def test_an_alias_of_the_start_serves_at_once(play: Play) -> None:
    aliases = {"chat": [Target(model="tiny", share=1.0)]}

    async def scenario(router: Router, _: FakeWorker) -> None:
        assert (await router.generate(model="chat")).completion.model == "tiny"
        # It does not make the only model ambiguous.
        assert (await router.generate()).completion.model == "tiny"

    play(scenario, settings={"aliases": aliases})


@pytest.mark.parametrize(
    ("name", "shares", "code", "says"),
    [
        ("tiny", {"tiny": 1.0}, "INVALID_ARGUMENT", "name: must not be the name of a model"),
        ("a/b", {"tiny": 1.0}, "INVALID_ARGUMENT", "name: must begin with a letter"),
        ("new", {}, "INVALID_ARGUMENT", "targets: must be 1 to 16 models, got 0"),
        ("new", {"tiny": 0.5}, "INVALID_ARGUMENT", "targets: must have shares that add up to 1"),
        ("new", {"tiny": 2.0}, "INVALID_ARGUMENT", "targets: must be a share above 0"),
        ("new", {"chat": 1.0}, "INVALID_ARGUMENT", "targets: must be models, got the alias chat"),
        ("new", {"nobody": 1.0}, "NOT_FOUND", "no model 'nobody'"),
    ],
)
def test_an_alias_that_cannot_be_is_refused(
    play: Play, name: str, shares: dict[str, float], code: str, says: str
) -> None:
    async def scenario(router: Router, _: FakeWorker) -> None:
        await alias(router, "chat", tiny=1.0)
        error = await router.error(alias(router, name, **shares))
        assert error.code() is StatusCode[code]
        assert says in str(error.details())

    play(scenario)
