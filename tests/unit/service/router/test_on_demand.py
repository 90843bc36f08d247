"""Models are loaded when requests name them, and unloaded when they are idle."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2 as httpx
import pytest
from grpc import StatusCode, aio

from harness.fake_model import describe_model
from harness.waiting import TIMEOUT
from shaperouter.v1 import model_pb2, worker_pb2
from shaperouter_service.routing.on_demand import OnDemandLimits
from shaperouter_service.serving import abandoned_loads, on_demand, repository
from shaperouter_service.serving.repository import Repository

if TYPE_CHECKING:
    from harness.fake_worker import FakeWorker
    from harness.router import Play, Router

Until = Callable[[Callable[[], bool]], Awaitable[None]]

# Room for one of the fake workers' models, whose weights take 1 MB, but not for files besides.
ONE_MODEL = 1_000_001


@pytest.fixture
def settings(tmp_path: Path, checkpoint: Path) -> dict[str, Any]:
    """A router that loads the three models of its repository on demand."""
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        for path in checkpoint.iterdir():
            (tmp_path / name / path.name).write_bytes(path.read_bytes())
        (tmp_path / name / "config.json").write_text(f'{{"of": "{name}"}}')
    return {"repository": tmp_path, "on_demand": OnDemandLimits(max_bytes=ONE_MODEL)}


def loaded(worker: FakeWorker) -> list[str]:
    """The public names of a worker's models."""
    return sorted(model.name.partition("@")[0] for model in worker.models)


async def report_idle(worker: FakeWorker, **seconds: float) -> None:
    """Lets the worker report how long models have been idle, as if it had counted."""
    worker.idle_seconds = seconds
    await worker.change()


async def deploy(worker: FakeWorker, **deployment: Any) -> None:
    """Gives the worker a deployment as another router does."""
    deployments = [worker_pb2.Deployment(**deployment, everywhere=True)]
    await worker.Deploy(worker_pb2.DeployRequest(router="other", deployments=deployments), None)


def test_a_request_loads_the_model_that_it_names_once(play: Play, settings: dict[str, Any]) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        answers = await asyncio.gather(*(router.generate(model="a") for _ in range(8)))
        assert {each.completion.model for each in answers} == {"a"}
        assert router.metric("model_changes_total", model="a", result="loaded") == 1
        assert [loaded(worker) for worker in workers] == 2 * [["a", "tiny"]]
        # What was loaded by chance does not make the model of the start ambiguous.
        assert (await router.generate()).completion.model == "tiny"

    play(scenario, workers=2, settings=settings)


def test_the_model_that_was_idle_longest_makes_room(play: Play, settings: dict[str, Any]) -> None:
    settings["on_demand"] = OnDemandLimits(max_bytes=ONE_MODEL + 1_000_000)

    async def scenario(router: Router, worker: FakeWorker) -> None:
        await router.generate(model="a")
        await router.generate(model="b")
        await report_idle(worker, a=5.0, b=60.0)
        await router.generate(model="c")
        assert loaded(worker) == ["a", "c", "tiny"]
        assert router.metric("model_changes_total", model="b", result="idle") == 1
        await report_idle(worker, a=5.0, c=2.0)
        await router.generate(model="b")
        assert loaded(worker) == ["b", "c", "tiny"]

    play(scenario, settings=settings)


@pytest.mark.usefixtures("wide_margins")
def test_a_model_in_use_stays_and_the_other_request_waits(
    play: Play, settings: dict[str, Any]
) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.script.insert(1, worker.hold)
        stream = router.stream(model="a")
        await stream.read()
        await report_idle(worker, a=60.0)
        error = await router.error(router.generate(model="b", timeout=5.0))
        assert error.code() is StatusCode.DEADLINE_EXCEEDED
        assert "it waits for memory, used by a" in str(error.details())
        waiting = asyncio.ensure_future(router.generate(model="b"))
        worker.released.set()
        while await stream.read() is not aio.EOF:
            pass
        await report_idle(worker, a=60.0)
        assert (await waiting).completion.model == "b"
        assert loaded(worker) == ["b", "tiny"]

    play(scenario, settings=settings)


async def in_use(router: Router, worker: FakeWorker, model: str) -> Any:
    """A stream that uses a model until the test sets `released`."""
    worker.script = [worker.tokens(5), worker.hold, worker.completion()]
    stream = router.stream(model=model)
    await stream.read()
    return stream


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The models whose loads have begun to look for memory."""
    found: list[str] = []
    size = Repository.size

    async def measure(self: Repository, name: str) -> int:
        need = await size(self, name)
        found.append(name)
        return need

    monkeypatch.setattr(Repository, "size", measure)
    return found


def test_a_load_that_fits_passes_one_that_waits_for_memory(
    play: Play, settings: dict[str, Any], until: Until, measured: list[str]
) -> None:
    (settings["repository"] / "c" / "weights.bin").write_bytes(bytes(ONE_MODEL))
    settings["on_demand"] = OnDemandLimits(max_bytes=ONE_MODEL * 3 // 2)

    async def scenario(router: Router, worker: FakeWorker) -> None:
        first = await in_use(router, worker, "a")
        waiting = asyncio.ensure_future(router.generate(model="c"))
        await until(lambda: "c" in measured)
        second = await in_use(router, worker, "b")
        assert not waiting.done()
        worker.released.set()
        for stream in (first, second):
            while await stream.read() is not aio.EOF:
                pass
        await report_idle(worker, a=60.0, b=60.0)
        assert (await waiting).completion.model == "c"

    play(scenario, settings=settings)


@pytest.mark.usefixtures("wide_margins")
def test_a_load_that_has_waited_long_for_memory_is_not_passed(
    play: Play,
    settings: dict[str, Any],
    until: Until,
    measured: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(on_demand, "PATIENCE", 0.0)
    (settings["repository"] / "c" / "weights.bin").write_bytes(bytes(ONE_MODEL))
    settings["on_demand"] = OnDemandLimits(max_bytes=ONE_MODEL * 3 // 2)

    async def scenario(router: Router, worker: FakeWorker) -> None:
        await in_use(router, worker, "a")
        waiting = router.generate(model="c")
        await until(lambda: "c" in measured)
        error = await router.error(router.generate(model="b", timeout=5.0))
        assert "it waits for memory, and c has waited longer" in str(error.details())
        other = asyncio.ensure_future(in_use(router, worker, "b"))
        # Nothing waits for a model any more whose last caller has left.
        waiting.cancel()
        await other
        assert loaded(worker) == ["a", "b", "tiny"]

    play(scenario, settings=settings)


@pytest.mark.usefixtures("wide_margins")
@pytest.mark.parametrize(("patience", "left"), [(30.0, ["a", "b", "tiny"]), (0.0, ["b", "tiny"])])
def test_models_that_are_too_small_make_room_only_after_a_long_wait(
    play: Play,
    settings: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    patience: float,
    left: list[str],
) -> None:
    monkeypatch.setattr(on_demand, "PATIENCE", patience)
    (settings["repository"] / "c" / "weights.bin").write_bytes(bytes(2 * ONE_MODEL))
    settings["on_demand"] = OnDemandLimits(max_bytes=ONE_MODEL * 5 // 2)

    async def scenario(router: Router, worker: FakeWorker) -> None:
        await router.generate(model="a")
        await in_use(router, worker, "b")
        await report_idle(worker, a=60.0)
        await router.error(router.generate(model="c", timeout=5.0))
        assert loaded(worker) == left

    play(scenario, settings=settings)


@pytest.mark.usefixtures("wide_margins")
def test_a_load_says_how_far_it_is_and_goes_on_without_its_caller(
    play: Play, settings: dict[str, Any]
) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.loading_ends.clear()
        error = await router.error(router.generate(model="a", timeout=5.0))
        assert error.code() is StatusCode.DEADLINE_EXCEEDED
        assert "a was not loaded before the deadline: worker-0 reads its files" in str(
            error.details()
        )
        worker.loading_ends.set()
        await router.generate(model="a")
        assert router.metric("model_changes_total", model="a", result="loaded") == 1

    play(scenario, settings=settings)


def test_models_that_a_request_may_load_are_listed(
    http: Callable[..., None], settings: dict[str, Any]
) -> None:
    async def scenario(client: httpx.AsyncClient, router: Router, *_: Any) -> None:
        await router.generate(model="b")
        await client.post("/v2/repository/models/b/unload")
        listed = {each["id"]: each for each in (await client.get("/v1/models")).json()["data"]}
        # An operator has unloaded b, so no request may load it.
        assert sorted(listed) == ["a", "c", "tiny"]
        assert "max_model_len" not in listed["a"]
        assert (await client.get("/v1/models/a")).json() == listed["a"]
        assert (await client.get("/v1/models/b")).status_code == 404
        await router.generate(model="a")
        assert (await client.get("/v1/models/a")).json()["max_model_len"] > 0

    http(scenario, settings=settings)


def test_the_first_stream_of_a_model_on_demand_has_the_texts_of_its_tokens(
    http: Callable[..., None], settings: dict[str, Any]
) -> None:
    async def scenario(client: httpx.AsyncClient, *_: Any) -> None:
        asked = {"model": "a", "prompt": "hello", "logprobs": 1, "stream": True}
        answer = await client.post("/v1/completions", json=asked)
        events = [line for line in answer.text.splitlines() if line.startswith("data: {")]
        choices = [json.loads(event.removeprefix("data: "))["choices"][0] for event in events]
        assert "".join(choice["text"] for choice in choices)
        for choice in choices:
            if choice["logprobs"]:
                assert "".join(choice["logprobs"]["tokens"]) == choice["text"]
                assert all(choice["logprobs"]["tokens"])

    http(scenario, settings=settings)


async def index_entry(client: httpx.AsyncClient, name: str) -> dict[str, str]:
    """A model's entry in the index of the repository."""
    models = (await client.post("/v2/repository/index")).json()
    entry: dict[str, str] = next(each for each in models if each["name"] == name)
    return entry


async def until_loading(client: httpx.AsyncClient, name: str, version: int) -> None:
    """Waits until the router knows that the worker loads a version of a model's deployment."""
    loading = {"state": "LOADING", "reason": f"worker-0 reads its files for version {version}"}
    while not loading.items() <= (await index_entry(client, name)).items():
        pass


def test_the_index_of_the_repository_shows_a_load(
    http: Callable[..., None], settings: dict[str, Any]
) -> None:
    async def scenario(client: httpx.AsyncClient, router: Router, worker: FakeWorker) -> None:
        worker.loading_ends.clear()
        waiting = asyncio.ensure_future(router.generate(model="a"))
        await until_loading(client, "a", 1)
        worker.loading_ends.set()
        await waiting

    http(scenario, settings=settings)


def test_a_model_that_cannot_be_loaded_is_not_tried_for_every_request(
    play: Play, settings: dict[str, Any]
) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.load_failures["a"] = "no memory"
        for _ in range(3):
            error = await router.error(router.generate(model="a"))
            assert error.code() is StatusCode.FAILED_PRECONDITION
            assert "worker-0: no memory" in str(error.details())
        assert router.metric("model_changes_total", model="a", result="failed") == 1

    play(scenario, settings=settings)


@pytest.mark.parametrize("losses", [1, 2])
def test_a_load_that_loses_a_worker_is_tried_once_more(
    http: Callable[..., None], settings: dict[str, Any], until: Until, losses: int
) -> None:
    async def scenario(client: httpx.AsyncClient, router: Router, worker: FakeWorker) -> None:
        def failures() -> float:
            return router.metric("model_changes_total", model="a", result="failed")

        worker.loading_ends.clear()
        request = asyncio.ensure_future(router.generate(model="a"))
        for lost in range(1, losses + 1):
            # The router must know what the worker was doing, and then that it has restarted.
            # The version between two loads takes the first one back.
            await until_loading(client, "a", 2 * lost - 1)
            await worker.kill()
            worker.models = [describe_model("tiny")]
            await worker.start()
            await worker.make_first_graphs()
            await until(lambda lost=lost: failures() == lost)
        worker.loading_ends.set()
        if losses == 1:
            assert (await request).completion.model == "a"
            return
        error = await router.error(request)
        assert error.code() is StatusCode.FAILED_PRECONDITION
        assert "worker-0 was lost while it loaded it" in str(error.details())
        # What may kill workers is not loaded again by the next request.
        assert (await router.error(router.generate(model="a"))).details() == error.details()
        assert failures() == 2

    http(scenario, settings=settings)


def test_what_a_router_that_is_gone_has_begun_to_load_is_freed(
    play: Play, settings: dict[str, Any], until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(abandoned_loads, "ABANDONED", 0.2)
    monkeypatch.setattr(abandoned_loads, "INTERVAL", 0.05)
    revision = worker_pb2.Revision(model="a@0123456789ab", digest="0123456789ab", location="a")

    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.learn(
            worker_pb2.Deployment(name="a", version=1, revisions=[revision], on_demand=True)
        )
        await worker.change()
        await until(lambda: loaded(worker) == ["a", "tiny"])
        # There is room for one model, so this waits for what nobody will use.
        await router.generate(model="b")
        assert loaded(worker) == ["b", "tiny"]

    play(scenario, settings=settings)


@pytest.mark.usefixtures("wide_margins")
def test_what_another_router_loads_takes_memory(play: Play, settings: dict[str, Any]) -> None:
    for name in ("a", "b"):
        (settings["repository"] / name / "weights.bin").write_bytes(bytes(ONE_MODEL * 6 // 10))
    revision = worker_pb2.Revision(model="b@0123456789ab", digest="0123456789ab", location="b")

    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.loading_ends.clear()
        await deploy(worker, name="b", version=1, revisions=[revision], on_demand=True)
        error = await router.error(router.generate(model="a", timeout=5.0))
        assert "it waits for memory, used by b" in str(error.details())
        assert [report.model for report in worker.reports] == [revision.model]
        # The other router gives it up, so that there is room.
        await deploy(worker, name="b", version=2, on_demand=True)
        waiting = asyncio.ensure_future(router.generate(model="a"))
        worker.loading_ends.set()
        assert (await waiting).completion.model == "a"

    play(scenario, settings=settings)


def test_a_model_that_alone_exceeds_the_memory_is_refused(
    play: Play, settings: dict[str, Any]
) -> None:
    settings["on_demand"] = OnDemandLimits(max_bytes=100)

    async def scenario(router: Router, worker: FakeWorker) -> None:
        error = await router.error(router.generate(model="a"))
        assert error.code() is StatusCode.FAILED_PRECONDITION
        assert "--on-demand-memory is 100 B" in str(error.details())
        assert loaded(worker) == ["tiny"]

    play(scenario, settings=settings)


def test_an_idle_model_is_unloaded_until_the_next_request(
    play: Play, settings: dict[str, Any], until: Until
) -> None:
    settings["on_demand"] = OnDemandLimits(max_bytes=ONE_MODEL, idle_seconds=0.05)

    async def scenario(router: Router, worker: FakeWorker) -> None:
        await router.generate(model="a")
        await report_idle(worker, a=1.0)
        await until(lambda: loaded(worker) == ["tiny"])
        await report_idle(worker)
        await router.generate(model="a")
        assert loaded(worker) == ["a", "tiny"]

    play(scenario, settings=settings)


def test_what_operators_load_or_unload_stays_so(
    play: Play, settings: dict[str, Any], until: Until
) -> None:
    settings["on_demand"] = OnDemandLimits(max_bytes=ONE_MODEL, idle_seconds=0.05)

    async def scenario(router: Router, worker: FakeWorker) -> None:
        await router.generate(model="a")
        request = model_pb2.LoadModelRequest(name="a")
        await router.models.LoadModel(request, timeout=TIMEOUT)
        await router.models.LoadModel(model_pb2.LoadModelRequest(name="b"), timeout=TIMEOUT)
        await report_idle(worker, a=60.0, b=60.0)
        await router.generate(model="c")
        await report_idle(worker, a=60.0, b=60.0, c=60.0)
        await until(lambda: loaded(worker) == ["a", "b", "tiny"])
        await router.models.UnloadModel(model_pb2.UnloadModelRequest(name="b"), timeout=TIMEOUT)
        error = await router.error(router.generate(model="b"))
        assert error.code() is StatusCode.NOT_FOUND

    play(scenario, settings=settings)


def test_what_an_operator_loads_while_it_is_to_make_room_stays(
    play: Play, settings: dict[str, Any], until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    loading, unloading, go_on = threading.Event(), threading.Event(), threading.Event()
    digest, unload = repository.model_digest, Repository.unload_idle

    def read(path: Path) -> str:
        loading.set()
        assert go_on.wait(TIMEOUT)
        return digest(path)

    async def unload_idle(self: Repository, name: str, seconds: float) -> bool:
        unloading.set()
        return await unload(self, name, seconds)

    async def scenario(router: Router, worker: FakeWorker) -> None:
        await router.generate(model="a")
        await report_idle(worker, a=60.0)
        monkeypatch.setattr(repository, "model_digest", read)
        monkeypatch.setattr(Repository, "unload_idle", unload_idle)
        request = model_pb2.LoadModelRequest(name="a")
        load = asyncio.ensure_future(router.models.LoadModel(request, timeout=TIMEOUT))
        await until(loading.is_set)
        other = asyncio.ensure_future(router.generate(model="b"))
        await until(unloading.is_set)
        go_on.set()
        await load
        # What operators load does not count towards the memory.
        await other
        assert loaded(worker) == ["a", "b", "tiny"]

    play(scenario, settings=settings)


def test_names_that_the_repository_lacks_are_unknown(play: Play, settings: dict[str, Any]) -> None:
    async def scenario(router: Router, _: FakeWorker) -> None:
        for name in ("nobody", "../a", "a/b"):
            error = await router.error(router.generate(model=name))
            assert error.code() is StatusCode.NOT_FOUND

    play(scenario, settings=settings)


def test_an_alias_of_a_model_loads_it(play: Play, settings: dict[str, Any]) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        await router.generate(model="a")
        target = model_pb2.Target(model="a", share=1.0)
        request = model_pb2.SetAliasRequest(name="chat", targets=[target])
        await router.models.SetAlias(request, timeout=TIMEOUT)
        await report_idle(worker, a=60.0)
        await router.generate(model="b")
        assert loaded(worker) == ["b", "tiny"]
        await report_idle(worker, b=60.0)
        assert (await router.generate(model="chat")).completion.model == "a"

    play(scenario, settings=settings)
