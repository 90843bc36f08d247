"""What Open Inference says about a server and its models."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest
from grpc import StatusCode

from harness.open_inference import infer_request
from harness.waiting import TIMEOUT
from shaperouter_service.edge.inference.stubs import grpc_service_pb2 as pb
from shaperouter_service.edge.inference.stubs.grpc_service_pb2_grpc import GRPCInferenceServiceStub

if TYPE_CHECKING:
    from harness.fake_worker import FakeWorker
    from harness.router import Play, Router

Until = Callable[[Callable[[], bool]], Awaitable[None]]


def stub_of(router: Router) -> Any:
    return GRPCInferenceServiceStub(router.channel)


def test_health_follows_workers(play: Play, until: Until) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        stub = stub_of(router)
        assert (await stub.ServerLive(pb.ServerLiveRequest())).live
        assert not (await stub.ServerReady(pb.ServerReadyRequest())).ready
        assert not (await stub.ModelReady(pb.ModelReadyRequest(name="tiny"))).ready
        (model,) = (await stub.RepositoryIndex(pb.RepositoryIndexRequest())).models
        assert (model.name, model.version, model.state) == ("tiny", "1", "LOADING")
        await worker.start()
        await until(lambda: router.free_slots > 0)
        assert (await stub.ServerReady(pb.ServerReadyRequest())).ready
        assert (await stub.ModelReady(pb.ModelReadyRequest(name="tiny", version="1"))).ready
        (model,) = (await stub.RepositoryIndex(pb.RepositoryIndexRequest(ready=True))).models
        assert model.state == "READY"

    play(scenario, started=False)


def test_a_router_that_stops_is_live_and_not_ready(play: Play, until: Until) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.script.insert(0, worker.hold)
        stub = stub_of(router)
        call = stub.ModelInfer(infer_request(text_input="A"), timeout=TIMEOUT)
        await until(lambda: worker.running == 1)
        router.stop.set()
        while (await stub.ServerReady(pb.ServerReadyRequest(), timeout=TIMEOUT)).ready:
            pass
        assert (await stub.ServerLive(pb.ServerLiveRequest(), timeout=TIMEOUT)).live
        worker.released.set()
        await call

    play(scenario, grace=TIMEOUT)


@pytest.mark.parametrize(("name", "version"), [("gpt3", ""), ("tiny", "2")])
def test_an_unknown_model_or_version_is_not_ready(play: Play, name: str, version: str) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        request = pb.ModelReadyRequest(name=name, version=version)
        assert not (await stub_of(router).ModelReady(request)).ready

    play(scenario)


def test_metadata_and_configuration_name_the_tensors(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        stub = stub_of(router)
        metadata = await stub.ModelMetadata(pb.ModelMetadataRequest(name="tiny"))
        config = (await stub.ModelConfig(pb.ModelConfigRequest(name="tiny"))).config
        assert list(metadata.versions) == ["1"]
        types = {tensor.name: tensor.datatype for tensor in metadata.inputs}
        assert types["text_input"] == "BYTES"
        assert types["max_tokens"] == types["max_new_tokens"] == "INT32"
        assert "logit_bias" not in types
        assert [tensor.name for tensor in metadata.outputs][:2] == ["text_output", "finish_reason"]
        assert [tensor.name for tensor in config.input] == [t.name for t in metadata.inputs]
        assert [tensor.name for tensor in config.input if not tensor.optional] == ["text_input"]
        assert config.model_transaction_policy.decoupled
        assert config.max_batch_size == 0

    play(scenario)


def test_statistics_count_requests(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        stub = stub_of(router)
        await stub.ModelInfer(infer_request(text_input="A"), timeout=TIMEOUT)
        refused = infer_request(text_input="A", max_tokens=1000)
        await router.error(stub.ModelInfer(refused, timeout=TIMEOUT))
        response = await stub.ModelStatistics(pb.ModelStatisticsRequest())
        (found,) = response.model_stats
        assert (found.name, found.inference_count) == ("tiny", 1)
        assert found.inference_stats.success.count == 1
        assert found.inference_stats.success.ns > 0
        assert found.inference_stats.fail.count == 1
        assert found.inference_stats.queue.ns == 125_000_000

    play(scenario)


def test_models_cannot_be_loaded_or_unloaded(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        stub = stub_of(router)
        for call in (
            stub.RepositoryModelLoad(pb.RepositoryModelLoadRequest(model_name="x")),
            stub.RepositoryModelUnload(pb.RepositoryModelUnloadRequest(model_name="tiny")),
        ):
            error = await router.error(call)
            assert error.code() is StatusCode.FAILED_PRECONDITION
            assert "set --model" in str(error.details())

    play(scenario)
