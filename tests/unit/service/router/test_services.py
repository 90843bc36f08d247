"""What a router reports: models, graphs, health, reflection."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest
import structlog
from grpc import StatusCode, aio
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from harness.holding import TOKENS, hold_after
from harness.router import deltas, read_events, wait_until
from harness.waiting import TIMEOUT
from shaperouter.v1 import graph_pb2, model_pb2, signature_pb2

if TYPE_CHECKING:
    from harness.fake_worker import FakeWorker
    from harness.router import Play, Router

Until = Callable[[Callable[[], bool]], Awaitable[None]]
RetrySeconds = Callable[[aio.AioRpcError], float]

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
PREFILL, DECODE = signature_pb2.GRAPH_KIND_PREFILL, signature_pb2.GRAPH_KIND_DECODE


async def list_models(router: Router) -> list[model_pb2.Model]:
    return list((await router.models.ListModels(model_pb2.ListModelsRequest())).models)


async def list_graphs(
    router: Router, *, model: str = "", include_cold: bool = False
) -> list[graph_pb2.Graph]:
    request = graph_pb2.ListGraphsRequest(model=model, include_cold=include_cold)
    return list((await router.graphs.ListGraphs(request)).graphs)


# Models.


def test_models_are_listed_by_name(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        assert [model.name for model in await list_models(router)] == ["large", "small"]

    play(scenario, models=("small", "large"))


def test_a_model_is_what_the_worker_says_with_tokenizer_and_workers(play: Play) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        (model,) = await list_models(router)
        assert model.tokenizer == "BPE"
        assert model.ready_workers == 2
        model.ClearField("tokenizer")
        model.ClearField("characters_per_token")
        model.ClearField("ready_workers")
        assert [(each.model, each.share) for each in model.targets] == [("tiny", 1.0)]
        model.ClearField("targets")
        assert model == workers[0].models[0]

    play(scenario, workers=2)


def test_get_model_is_the_model_of_the_list(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        response = await router.models.GetModel(model_pb2.GetModelRequest(name="tiny"))
        assert [response.model] == await list_models(router)

    play(scenario)


def test_an_unknown_model_is_not_found(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        call = router.models.GetModel(model_pb2.GetModelRequest(name="gpt3"))
        error = await router.error(call)
        assert error.code() is StatusCode.NOT_FOUND
        assert "'gpt3'; this service has tiny" in str(error.details())

    play(scenario)


def test_a_model_without_a_tokenizer_names_none(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        (model,) = await list_models(router)
        assert model.tokenizer == ""

    play(scenario, text=False)


def test_a_model_is_listed_once_a_worker_has_loaded_it(
    play: Play, retry_seconds: RetrySeconds
) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        assert await list_models(router) == []
        call = router.models.GetModel(model_pb2.GetModelRequest(name="tiny"))
        error = await router.error(call)
        assert error.code() is StatusCode.UNAVAILABLE
        assert retry_seconds(error) > 0
        await worker.start()
        await router.wait_for_health("readiness", SERVING)
        assert [model.name for model in await list_models(router)] == ["tiny"]

    play(scenario, started=False)


def test_each_model_is_served_by_the_workers_that_hold_it(play: Play, until: Until) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        for worker, held in zip(workers, ("large", "small"), strict=True):
            for model in [each for each in worker.models if each.name != held]:
                worker.models.remove(model)
            await worker.start()
        await router.wait_for_health("readiness", SERVING)
        for worker, held in zip(workers, ("large", "small"), strict=True):
            for _ in range(3):
                assert (await router.generate(model=held)).completion.worker == worker.name
        await workers[0].kill()
        assert (await router.generate(model="small")).completion.worker == workers[1].name

    play(scenario, workers=2, models=("large", "small"), started=False)


def test_a_model_stays_listed_without_workers(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        await worker.kill()
        await router.wait_for_health("readiness", NOT_SERVING)
        (model,) = await list_models(router)
        assert (model.name, model.ready_workers) == ("tiny", 0)

    play(scenario)


# Graphs.


def test_graphs_are_those_that_workers_have(play: Play, until: Until) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        assert await list_graphs(router) == []
        worker.graphs = [worker.graph(worker.signature(16))]
        await worker.change()
        await wait_until(lambda: router.metric("graphs", state="ready") == 1)
        assert await list_graphs(router) == worker.graphs

    play(scenario)


def test_graphs_are_in_order_of_shape_and_worker(play: Play, until: Until) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        for worker in reversed(workers):
            shapes = [(24, PREFILL), (16, PREFILL), (128, DECODE), (64, DECODE)]
            worker.graphs = [worker.graph(worker.signature(*shape)) for shape in shapes]
            await worker.start()
        await wait_until(lambda: router.metric("graphs", state="ready") == 8)
        graphs = await list_graphs(router)
        assert [(graph.signature.length, graph.worker) for graph in graphs] == [
            (64, "worker-0"),
            (64, "worker-1"),
            (128, "worker-0"),
            (128, "worker-1"),
            (16, "worker-0"),
            (16, "worker-1"),
            (24, "worker-0"),
            (24, "worker-1"),
        ]

    play(scenario, workers=2, started=False)


def test_graphs_of_a_lost_worker_are_gone(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.graphs = [worker.graph(worker.signature(16))]
        await worker.start()
        await router.wait_for_health("readiness", SERVING)
        assert len(await list_graphs(router)) == 1
        await worker.kill()
        await router.wait_for_health("readiness", NOT_SERVING)
        assert await list_graphs(router) == []

    play(scenario, started=False)


def test_cold_signatures_are_listed_on_request(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.graphs = [worker.graph(worker.signature(16))]
        await worker.start()
        await router.wait_for_health("readiness", SERVING)
        graphs = await list_graphs(router, include_cold=True)
        known = [graph for graph in graphs if graph.state != graph_pb2.GRAPH_STATE_COLD]
        assert known == worker.graphs
        lengths = {graph.signature.length for graph in graphs if graph.signature.kind == PREFILL}
        assert lengths == set(worker.models[0].ladders.prefill_lengths)

    play(scenario, started=False)


@pytest.mark.parametrize("model", ["", "tiny"])
def test_cold_graphs_that_workers_report_are_not_listed_by_themselves(
    play: Play, model: str
) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        cold = worker.graph(worker.signature(64))
        cold.state = graph_pb2.GRAPH_STATE_COLD
        worker.graphs = [worker.graph(worker.signature(16)), cold]
        await worker.start()
        await router.wait_for_health("readiness", SERVING)
        graphs = await list_graphs(router, model=model)
        assert [graph.signature.length for graph in graphs] == [16]

    play(scenario, started=False)


def test_a_signature_is_cold_on_each_worker_by_itself(play: Play) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        graphs = await list_graphs(router, include_cold=True)
        names = {graph.worker for graph in graphs if graph.signature.length == 16}
        assert names == {"worker-0", "worker-1"}

    play(scenario, workers=2)


@pytest.mark.parametrize("include_cold", [False, True])
def test_graphs_of_one_model(play: Play, include_cold: bool) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.graphs = []
        for model in ("large", "small"):
            signature = worker.signature(16)
            signature.model = model
            worker.graphs.append(worker.graph(signature))
        await worker.start()
        await router.wait_for_health("readiness", SERVING)
        graphs = await list_graphs(router, model="small", include_cold=include_cold)
        assert {graph.signature.model for graph in graphs} == {"small"}

    play(scenario, models=("large", "small"), started=False)


def test_graphs_of_an_unknown_model_are_not_found(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        call = router.graphs.ListGraphs(graph_pb2.ListGraphsRequest(model="gpt3"))
        assert (await router.error(call)).code() is StatusCode.NOT_FOUND

    play(scenario)


# Health.


def test_a_router_is_alive_but_not_ready_before_it_has_workers(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        await router.wait_for_health("liveness", SERVING)
        assert await router.health_of("readiness") == NOT_SERVING
        assert await router.health_of("") == NOT_SERVING

    play(scenario, started=False)


def test_a_router_is_ready_with_a_worker(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        assert await router.health_of("readiness") == SERVING
        assert await router.health_of("") == SERVING
        assert await router.health_of("liveness") == SERVING

    play(scenario)


def test_readiness_goes_with_the_last_worker_and_liveness_stays(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        await worker.kill()
        await router.wait_for_health("readiness", NOT_SERVING)
        assert await router.health_of("") == NOT_SERVING
        assert await router.health_of("liveness") == SERVING

    play(scenario)


def test_a_model_without_a_worker_takes_no_other_model_down(play: Play) -> None:
    async def scenario(router: Router, first: FakeWorker, second: FakeWorker) -> None:
        for worker, name in ((first, "one"), (second, "two")):
            worker.models = [model for model in worker.models if model.name == name]
            await worker.start()
        await router.wait_for_health("readiness", SERVING)
        with structlog.testing.capture_logs() as logs:
            await second.kill()
            await wait_until(lambda: router.metric("model_workers", model="two") == 0)
        assert await router.health_of("readiness") == SERVING
        assert (await router.generate(model="one")).sequences
        assert router.metric("model_workers", model="one") == 1
        assert {"model has no worker": "two"}.items() <= {
            entry["event"]: entry.get("model") for entry in logs
        }.items()
        await first.kill()
        await router.wait_for_health("readiness", NOT_SERVING)

    play(scenario, workers=2, models=["one", "two"], started=False)


def test_readiness_comes_back_with_the_worker(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        await worker.kill()
        await router.wait_for_health("readiness", NOT_SERVING)
        await worker.start()
        await router.wait_for_health("readiness", SERVING)

    play(scenario)


def test_where_workers_scale_to_zero_a_router_is_ready_without_one(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        await router.wait_for_health("readiness", SERVING)
        # It waits, which is what starts a worker.
        call = router.generate()
        await worker.start()
        assert (await call).sequences
        await worker.kill()
        assert await router.health_of("readiness") == SERVING

    play(scenario, started=False, settings={"ready_without_workers": True})


def test_where_workers_scale_to_zero_a_router_is_not_ready_while_it_drains(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        hold_after(1, worker)
        call = router.stream()
        first = await call.read()
        router.stop.set()
        await router.wait_for_health("readiness", NOT_SERVING)
        assert await router.health_of("liveness") == SERVING
        worker.released.set()
        rest, _ = await read_events(call)
        assert [token for d in deltas([first, *rest]) for token in d.token_ids] == TOKENS

    play(scenario, grace=TIMEOUT, settings={"ready_without_workers": True})


def test_a_router_stays_ready_while_one_worker_is_left(play: Play, until: Until) -> None:
    async def scenario(router: Router, first: FakeWorker, second: FakeWorker) -> None:
        await first.kill()
        await until(lambda: router.free_slots == 4)
        assert await router.health_of("readiness") == SERVING

    play(scenario, workers=2)


def test_an_unknown_service_has_no_health(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        error = await router.error(router.health_of("nonsense"))
        assert error.code() is StatusCode.NOT_FOUND

    play(scenario)


# Stopping.


def test_running_requests_finish_when_the_router_stops(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.script.insert(1, worker.hold)
        call = router.stream()
        await call.read()
        router.stop.set()
        worker.released.set()
        assert (await call.read()).delta.token_ids == [7, 8]
        assert (await call.read()).HasField("completion")

    play(scenario, grace=TIMEOUT)


def test_a_router_that_stops_refuses_new_requests_and_says_when_to_try_again(
    play: Play, retry_seconds: RetrySeconds
) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.script.insert(1, worker.hold)
        running = router.stream()
        await running.read()
        router.stop.set()
        await router.wait_for_health("readiness", NOT_SERVING)
        for call in (router.generate(), router.stream()):
            error = await router.error(call)
            assert error.code() is StatusCode.UNAVAILABLE
            assert error.details() == "the service is being stopped; send the request again"
            assert retry_seconds(error) > 0
        worker.released.set()
        events, _ = await read_events(running)
        assert [list(delta.token_ids) for delta in deltas(events)] == [[7, 8]]

    play(scenario, grace=TIMEOUT)


def test_a_router_stops_as_soon_as_its_last_request_has_ended(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        await router.generate()
        router.stop.set()

    before = time.monotonic()
    play(scenario, grace=600.0)
    assert time.monotonic() - before < 300


def test_what_runs_beyond_the_grace_is_ended(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.script.insert(1, worker.hold)
        call = router.stream()
        await call.read()
        router.stop.set()
        assert (await router.error(call)).code() is StatusCode.UNAVAILABLE

    play(scenario, grace=0.1)


def test_readiness_goes_before_a_router_stops(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        request = health_pb2.HealthCheckRequest(service="readiness")
        watch = router.health.Watch(request)
        assert (await watch.read()).status == SERVING
        router.stop.set()
        assert (await watch.read()).status == NOT_SERVING
        watch.cancel()

    play(scenario, grace=TIMEOUT)


# Reflection.


def test_reflection_lists_the_services(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        stub = reflection_pb2_grpc.ServerReflectionStub(router.channel)
        asked = [reflection_pb2.ServerReflectionRequest(list_services="")]
        (answer,) = [answer async for answer in stub.ServerReflectionInfo(iter(asked))]
        names = {service.name for service in answer.list_services_response.service}
        assert names == {
            "shaperouter.v1.GenerationService",
            "shaperouter.v1.ModelService",
            "shaperouter.v1.GraphService",
            "shaperouter.v1.TranscriptionService",
            "shaperouter.v1.InferenceService",
            "inference.GRPCInferenceService",
            "tensorflow.serving.PredictionService",
            "tensorflow.serving.ModelService",
            "grpc.health.v1.Health",
            "grpc.reflection.v1alpha.ServerReflection",
        }

    play(scenario)


@pytest.mark.parametrize(
    "symbol",
    [
        "shaperouter.v1.GenerationService",
        "inference.GRPCInferenceService",
        "tensorflow.serving.PredictionService",
    ],
)
def test_reflection_gives_the_files_of_a_service(play: Play, symbol: str) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        stub = reflection_pb2_grpc.ServerReflectionStub(router.channel)
        asked = [reflection_pb2.ServerReflectionRequest(file_containing_symbol=symbol)]
        (answer,) = [answer async for answer in stub.ServerReflectionInfo(iter(asked))]
        assert answer.file_descriptor_response.file_descriptor_proto

    play(scenario)


def test_the_workers_service_is_not_public(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        call: Any = router.channel.unary_unary("/shaperouter.v1.WorkerService/Want")
        error = await router.error(call(b""))
        assert error.code() is StatusCode.UNIMPLEMENTED

    play(scenario)
