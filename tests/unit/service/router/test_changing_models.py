"""Models are loaded and unloaded through a router: over gRPC, and over the Open Inference doors."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2 as httpx
import pytest
from grpc import StatusCode, aio
from grpc_health.v1 import health_pb2

from harness.fake_model import SLOTS, describe_model
from harness.loads import load, make_repository, restart, unload
from harness.waiting import TIMEOUT
from shaperouter.v1 import model_pb2, worker_pb2
from shaperouter_service.errors import ModelUnloadingError, StartupError
from shaperouter_service.serving import repository

if TYPE_CHECKING:
    from harness.fake_events import Step
    from harness.fake_worker import FakeWorker
    from harness.router import Play, Router

Until = Callable[[Callable[[], bool]], Awaitable[None]]


@pytest.fixture
def settings(tmp_path: Path, checkpoint: Path) -> dict[str, Any]:
    return {"repository": make_repository(tmp_path, checkpoint)}


def used(worker: FakeWorker) -> list[str]:
    """What the worker's runs called the model."""
    return [request.model for request in worker.requests]


def test_a_load_waits_for_file_descriptors(
    play: Play, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(path: Path) -> str:
        raise StartupError(f"cannot read {path}") from OSError(errno.EMFILE, "Too many open files")

    async def scenario(router: Router, worker: FakeWorker) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(repository, "model_digest", exhausted)
            error = await router.error(load(router, "tiny", "tiny-2"))
        assert error.code() is StatusCode.RESOURCE_EXHAUSTED
        assert "no file descriptors left" in str(error.details())
        await load(router, "tiny", "tiny-2")

    play(scenario, settings=settings)


def test_requests_get_a_revision_once_every_worker_has_it(
    play: Play, settings: dict[str, Any]
) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        await router.generate(model="tiny")
        model = await load(router, "tiny", "tiny-2")
        assert (model.name, model.ready_workers) == ("tiny", 2)
        response = await router.generate(model="tiny")
        assert response.completion.model == "tiny"
        first, second = [name for worker in workers for name in used(worker)]
        assert {first, second} == {"tiny", f"tiny@{model.revision[:12]}"}
        assert workers[0].models == workers[1].models

    play(scenario, workers=2, settings=settings)


def test_a_model_that_a_worker_cannot_load_changes_nothing(
    play: Play, settings: dict[str, Any]
) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        workers[1].load_failures["tiny-2"] = "no memory"
        error = await router.error(load(router, "tiny", "tiny-2"))
        assert error.code() is StatusCode.FAILED_PRECONDITION
        assert "tiny was not loaded, and nothing has changed: worker-1: no memory" in str(
            error.details()
        )
        await router.generate(model="tiny")
        assert [*used(workers[0]), *used(workers[1])] == ["tiny"]

    play(scenario, workers=2, settings=settings)


def test_a_revision_that_serves_already_is_not_loaded_again(
    play: Play, settings: dict[str, Any], until: Until
) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        await load(router, "tiny", "tiny-2")
        await until(lambda: len(worker.orders[-1].deployments[0].revisions) == 1)
        told = worker.orders[-1]
        await load(router, "tiny", "tiny-2")
        assert worker.orders[-1] == told

    play(scenario, settings=settings)


def test_a_load_knows_what_another_router_has_just_loaded(
    play: Play, settings: dict[str, Any]
) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        await load(router, "tiny", "tiny-2")
        before = worker.orders[-1].deployments[0]
        others = worker_pb2.Deployment(name="tiny", version=before.version + 1)
        others.revisions.add(
            model="tiny@333333333333", digest="3" * 64, location="tiny-3", share=1.0
        )
        worker.learn(others)
        # For all that this router has heard of, it serves already.
        await load(router, "tiny", "tiny-2")
        newest = worker.orders[-1].deployments[0]
        assert newest.version > others.version
        assert newest.revisions[0] == before.revisions[0]

    play(scenario, settings=settings)


def test_an_unloaded_model_is_unknown_until_it_is_loaded_again(
    play: Play, settings: dict[str, Any]
) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        await unload(router, "tiny")
        error = await router.error(router.generate(model="tiny"))
        assert error.code() is StatusCode.NOT_FOUND
        error = await router.error(unload(router, "tiny"))
        assert error.code() is StatusCode.NOT_FOUND
        await load(router, "tiny", "tiny-3")
        await router.generate(model="tiny")

    play(scenario, settings=settings)


def test_a_revision_is_held_while_a_request_uses_it(
    play: Play, settings: dict[str, Any], until: Until
) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.script.insert(1, worker.hold)
        stream = router.stream(model="tiny")
        await stream.read()
        await load(router, "tiny", "tiny-2")
        await until(lambda: [each.model for each in worker.orders[-1].held] == ["tiny"])
        worker.released.set()
        while await stream.read() is not aio.EOF:
            pass
        await until(lambda: not worker.orders[-1].held)
        assert [model.name.partition("@")[1] for model in worker.models] == ["@"]

    play(scenario, settings=settings)


def request_series(router: Router, **labels: str) -> set[str]:
    """Names of the metrics of requests that have series with these labels."""
    of_requests = ("shaperouter_requests", "shaperouter_revision_request", "shaperouter_num_")
    return {
        family.name
        for family in router.registry.collect()
        for sample in family.samples
        if family.name.startswith(of_requests) and labels.items() <= sample.labels.items()
    }


def test_revisions_and_models_have_series_only_while_requests_can_use_them(
    play: Play, settings: dict[str, Any], until: Until
) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        old = (await load(router, "tiny", "tiny-2")).revision[:12]
        worker.script.insert(1, worker.hold)
        stream = router.stream(model="tiny")
        await stream.read()
        new = (await load(router, "tiny", "tiny-3")).revision[:12]
        assert request_series(router, revision=old) == request_series(router, revision=new)
        await unload(router, "tiny")
        assert router.metric("num_requests_running", model="tiny") == 1
        assert not request_series(router, revision=new)
        assert request_series(router, revision=old)
        worker.released.set()
        while await stream.read() is not aio.EOF:
            pass
        await until(lambda: not request_series(router, model="tiny"))
        await load(router, "tiny", "tiny-3")
        await router.generate(model="tiny")
        assert router.metric("requests_total", model="tiny", code="OK") == 1
        assert not request_series(router, revision=old)

    play(scenario, settings=settings)


def test_a_worker_that_joins_gets_what_was_loaded(
    play: Play, settings: dict[str, Any], until: Until
) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        model = await load(router, "tiny", "tiny-2")
        revision = f"tiny@{model.revision[:12]}"
        await restart(workers[1])
        await until(lambda: [each.name for each in workers[1].models] == [revision])

    play(scenario, workers=2, settings=settings)


def test_a_worker_that_frees_a_model_stays_while_others_take_its_runs(
    play: Play, settings: dict[str, Any]
) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        asked: list[str] = []

        def script_of(worker: FakeWorker) -> list[Step]:
            asked.append(worker.name)
            return [ModelUnloadingError("tiny")] if worker.name == asked[0] else worker.script

        for worker in workers:
            worker.script_of = lambda _, worker=worker: script_of(worker)
        completion = (await router.generate(model="tiny")).completion
        assert asked == [asked[0], completion.worker]
        assert (router.metric("workers"), router.metric("workers_lost_total")) == (2, 0)

    play(scenario, workers=2, settings=settings)


def test_a_router_that_drains_tells_workers_that_start_what_was_loaded(
    play: Play, settings: dict[str, Any], until: Until
) -> None:
    """It may be the last process of the service that knows."""

    async def scenario(router: Router, *workers: FakeWorker) -> None:
        model = await load(router, "tiny", "tiny-2")
        revision = f"tiny@{model.revision[:12]}"
        for worker in workers:
            worker.script = [worker.hold]
        stream = router.stream(model="tiny")
        await until(lambda: any(worker.running for worker in workers))
        (idle,) = [worker for worker in workers if not worker.running]
        router.stop.set()
        await restart(idle)
        await until(lambda: revision in [each.name for each in idle.models])
        stream.cancel()

    play(scenario, workers=2, settings=settings, grace=TIMEOUT)


def test_a_router_that_has_just_started_waits_until_every_worker_has_told_what_was_loaded(
    play: Play, settings: dict[str, Any]
) -> None:
    """It may first meet a worker that has just started, too, and knows nothing either."""

    async def scenario(router: Router, *workers: FakeWorker) -> None:
        await workers[0].start()
        await workers[0].make_first_graphs()
        await router.wait_for_health("readiness", health_pb2.HealthCheckResponse.SERVING)
        loading = asyncio.create_task(router.error(load(router, "tiny", "absent")))
        answer = router.generate(model="tiny")
        for _ in range(20):
            await router.models.ListModels(model_pb2.ListModelsRequest(), timeout=TIMEOUT)
        assert not answer.done()
        assert not loading.done()
        await workers[1].start()
        assert (await loading).code() is StatusCode.INVALID_ARGUMENT
        assert (await answer).completion.model == "tiny"

    play(scenario, workers=2, settings=settings, started=False)


async def start_with_revisions(router: Router, workers: Sequence[FakeWorker], until: Until) -> None:
    """Starts workers of which each has other files of the model."""
    for worker in workers:
        worker.models = [describe_model("tiny", revision=worker.name)]
        await worker.start()
        await worker.make_first_graphs()
    await router.wait_for_health("readiness", health_pb2.HealthCheckResponse.SERVING)
    await until(lambda: router.free_slots == SLOTS * len(workers))


def test_an_answer_names_the_revision_of_its_worker(play: Play, until: Until) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        await start_with_revisions(router, workers, until)
        answers = await asyncio.gather(*(router.generate(model="tiny") for _ in range(8)))
        completions = [answer.completion for answer in answers]
        assert {each.worker for each in completions} == {worker.name for worker in workers}
        assert all(each.revision == each.worker for each in completions)

    play(scenario, workers=2, started=False)


def test_another_revision_does_not_continue_a_run(play: Play, until: Until) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        for worker in workers:
            worker.script.insert(1, worker.hold)
        await start_with_revisions(router, workers, until)
        stream = router.stream(model="tiny")
        await stream.read()
        (busy,) = [worker for worker in workers if worker.running]
        await busy.kill()
        error = await router.error(stream.read())
        assert error.code() is StatusCode.UNAVAILABLE
        assert "another revision must not continue it" in str(error.details())
        assert sum(len(worker.requests) for worker in workers) == 1

    play(scenario, workers=2, started=False)


def test_a_run_without_tokens_begins_anew_on_another_revision(play: Play, until: Until) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        for worker in workers:
            worker.script.insert(0, worker.hold)
        await start_with_revisions(router, workers, until)
        generation = asyncio.ensure_future(router.generate(model="tiny"))
        await until(lambda: any(worker.running for worker in workers))
        (busy,) = [worker for worker in workers if worker.running]
        (other,) = [worker for worker in workers if not worker.running]
        await busy.kill()
        other.released.set()
        completion = (await generation).completion
        assert completion.worker == completion.revision == other.name

    play(scenario, workers=2, started=False)


@pytest.mark.parametrize(
    ("name", "location", "field"),
    [
        ("tiny@2", "tiny-2", "name: must begin with a letter"),
        ("tiny", "missing", "location: 'missing' is not in the model repository"),
        ("tiny", "../tiny-2", "location: must be a path below the model repository"),
    ],
)
def test_what_cannot_be_loaded_is_refused(
    play: Play, settings: dict[str, Any], name: str, location: str, field: str
) -> None:
    async def scenario(router: Router, _: FakeWorker) -> None:
        error = await router.error(load(router, name, location))
        assert error.code() is StatusCode.INVALID_ARGUMENT
        assert field in str(error.details())

    play(scenario, settings=settings)


def test_without_a_repository_models_are_fixed(play: Play) -> None:
    async def scenario(router: Router, _: FakeWorker) -> None:
        for change in (load(router, "tiny"), unload(router, "tiny")):
            error = await router.error(change)
            assert error.code() is StatusCode.FAILED_PRECONDITION
            assert "start it with --model-repository" in str(error.details())

    play(scenario)


def test_models_are_loaded_by_tritons_calls_over_http(
    http: Callable[..., None], settings: dict[str, Any]
) -> None:
    async def scenario(client: httpx.AsyncClient, router: Router, worker: FakeWorker) -> None:
        async def index() -> dict[str, str]:
            models = (await client.post("/v2/repository/index")).json()
            return {model["name"]: model["state"] for model in models}

        unavailable = {"tiny-2": "UNAVAILABLE", "tiny-3": "UNAVAILABLE"}
        assert await index() == {"tiny": "READY"} | unavailable
        response = await client.post("/v2/repository/models/tiny-2/load")
        assert (response.status_code, response.content) == (200, b"")
        body = {"parameters": {"location": "tiny-3"}}
        response = await client.post("/v2/repository/models/tiny/load", json=body)
        assert response.status_code == 200
        assert await index() == {"tiny": "READY", "tiny-2": "READY", "tiny-3": "UNAVAILABLE"}
        body = {"parameters": {"unload_dependents": False}}
        response = await client.post("/v2/repository/models/tiny-2/unload", json=body)
        assert response.status_code == 200
        assert await index() == {"tiny": "READY"} | unavailable
        for path, body in (
            ("load", {"parameters": {"config": "{}"}}),
            ("load", {"parameters": {"location": 3}}),
            ("unload", {"model": "tiny"}),
        ):
            response = await client.post(f"/v2/repository/models/tiny/{path}", json=body)
            assert response.status_code == 400

    http(scenario, settings=settings)
