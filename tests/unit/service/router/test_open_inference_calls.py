"""Calls of functions and text encoders over Open Inference: a router, and fake workers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from grpc import StatusCode

from harness.fake_model import describe_encoder, describe_function
from harness.waiting import TIMEOUT
from shaperouter.v1 import model_pb2
from shaperouter_service.edge.inference.stubs import grpc_service_pb2 as pb
from shaperouter_service.edge.inference.stubs.grpc_service_pb2_grpc import GRPCInferenceServiceStub
from shaperouter_service.routing.deployments import Target

if TYPE_CHECKING:
    from harness.fake_worker import FakeWorker
    from harness.router import Play, Router

Until = Callable[[Callable[[], bool]], Awaitable[None]]

DOUBLE = [describe_function("double")]
ENCODER = [describe_encoder("encoder")]
CLASSIFIER = describe_encoder("classifier")
CLASSIFIER.kind = model_pb2.MODEL_KIND_CLASSIFIER
CLASSIFIER.call.labels[:] = ["bad", "good"]
CLASSIFIER.call.outputs[0].name = "scores"
CLASSIFIER.call.batch.outputs.clear()
CLASSIFIER.call.batch.outputs["scores"] = 0
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def stub_of(router: Router) -> Any:
    return GRPCInferenceServiceStub(router.channel)


async def infer(router: Router, request: pb.ModelInferRequest) -> pb.ModelInferResponse:
    return await stub_of(router).ModelInfer(request, timeout=TIMEOUT)


def request_of(array: np.ndarray[Any, Any] = X, *, raw: bool = True) -> pb.ModelInferRequest:
    request = pb.ModelInferRequest(model_name="double", id="mine")
    tensor = request.inputs.add(name="x", datatype="FP32", shape=array.shape)
    if raw:
        request.raw_input_contents.append(array.tobytes())
    else:
        tensor.contents.fp32_contents.extend(array.ravel().tolist())
    return request


def test_a_call_in_bytes_is_answered_in_bytes(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        response = await infer(router, request_of())
        assert (response.model_name, response.model_version, response.id) == ("double", "1", "mine")
        (output,) = response.outputs
        assert (output.name, output.datatype, list(output.shape)) == ("y", "FP32", [2, 3])
        assert response.raw_output_contents == [(2 * X).tobytes()]

    play(scenario, called=DOUBLE)


@pytest.mark.parametrize(("asked", "answered"), [("twice", "twice"), ("", "double")])
def test_the_answer_has_the_name_that_the_request_gave(
    play: Play, asked: str, answered: str
) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        request = request_of()
        request.model_name = asked
        assert (await infer(router, request)).model_name == answered

    aliases = {"twice": [Target(model="double", share=1.0)]}
    play(scenario, models=(), called=DOUBLE, settings={"aliases": aliases})


def test_a_call_in_values_is_answered_in_values(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        response = await infer(router, request_of(raw=False))
        assert response.outputs[0].contents.fp32_contents == (2 * X).ravel().tolist()
        assert not response.raw_output_contents

    play(scenario, called=DOUBLE)


def test_a_call_in_a_stream_has_one_last_response(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        requests = [request_of(), request_of(X[0])]
        requests[1].id = "wrong"
        call = stub_of(router).ModelStreamInfer(iter(requests), timeout=TIMEOUT)
        found = {r.infer_response.id: r async for r in call}
        assert found["mine"].infer_response.raw_output_contents == [(2 * X).tobytes()]
        assert found["wrong"].error_message == "inputs.x: must have 2 dimensions, got 1"
        for response in found.values():
            assert response.infer_response.parameters["triton_final_response"].bool_param

    play(scenario, called=DOUBLE)


def test_texts_are_embedded(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.answer = lambda inputs: {"embedding": np.ones((len(inputs["input_ids"]), 2), "f4")}
        request = pb.ModelInferRequest(model_name="encoder")
        tensor = request.inputs.add(name="text", datatype="BYTES", shape=[2, 1])
        tensor.contents.bytes_contents.extend([b"one", b"two"])
        (output,) = (await infer(router, request)).outputs
        assert (output.name, list(output.shape)) == ("embedding", [2, 2])

    play(scenario, called=ENCODER)


def test_a_call_waits_for_a_worker_to_load_the_model(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        call = asyncio.ensure_future(infer(router, request_of()))
        await worker.start()
        assert (await call).model_name == "double"

    play(scenario, called=DOUBLE, started=False)


def test_cancelling_a_call_frees_the_worker(play: Play, until: Until) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.call_script = [worker.hold]
        call = asyncio.ensure_future(infer(router, request_of()))
        await until(lambda: worker.running == 1)
        call.cancel()
        await until(lambda: worker.cancelled == 1)

    play(scenario, called=DOUBLE)


def test_a_call_has_no_parameters(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        request = request_of()
        request.parameters["priority"].int64_param = 1
        request.outputs.add(name="y").parameters["classification"].int64_param = 3
        error = await router.error(infer(router, request))
        assert error.code() is StatusCode.INVALID_ARGUMENT
        assert "parameters: must have no parameters, got 'priority'" in str(error.details())
        assert "outputs.y: must have no parameters, got 'classification'" in str(error.details())

    play(scenario, called=DOUBLE)


def test_a_request_to_generate_is_limited_like_a_text(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        request = pb.ModelInferRequest(model_name="tiny")
        request.parameters["text_input"].string_param = "x" * 2**20
        error = await router.error(infer(router, request))
        assert error.code() is StatusCode.INVALID_ARGUMENT
        assert "must have at most 1048576 bytes to generate text, got 1048" in str(error.details())

    play(scenario, called=DOUBLE)


def test_metadata_has_the_batch_and_the_configuration_has_not(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        stub = stub_of(router)
        metadata = await stub.ModelMetadata(pb.ModelMetadataRequest(name="double"))
        (tensor,) = metadata.inputs
        assert (tensor.name, tensor.datatype, list(tensor.shape)) == ("x", "FP32", [-1, -1])
        config = (await stub.ModelConfig(pb.ModelConfigRequest(name="double"))).config
        assert config.max_batch_size == 4
        assert list(config.dynamic_batching.preferred_batch_size) == [1, 2, 4]
        assert not config.model_transaction_policy.decoupled
        assert [list(each.dims) for each in (*config.input, *config.output)] == [[-1], [-1]]
        assert config.parameters["axes.length"].string_value == "16, 64"
        assert config.parameters["compiled"].string_value == "true"

    play(scenario, called=DOUBLE)


def test_a_large_call_is_answered_like_a_small_one(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        array = np.arange(4000 * 64, dtype=np.float32).reshape(4000, 64)
        response = await infer(router, request_of(array))
        assert response.raw_output_contents == [(2 * array).tobytes()]

    play(scenario, called=DOUBLE)


def test_a_classifier_answers_with_the_best_label_and_says_so(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.answer = lambda inputs: {"scores": np.float32([[0.25, 0.75]])}
        request = pb.ModelInferRequest(model_name="classifier")
        request.parameters["triton_enable_empty_final_response"].bool_param = True
        tensor = request.inputs.add(name="text", datatype="BYTES", shape=[1])
        tensor.contents.bytes_contents.append(b"one")
        scores, label = (await infer(router, request)).outputs
        assert (scores.name, label.name) == ("scores", "label")
        assert label.contents.bytes_contents == [b"good"]
        metadata = await stub_of(router).ModelMetadata(pb.ModelMetadataRequest(name="classifier"))
        shapes = {each.name: list(each.shape) for each in metadata.outputs}
        assert shapes == {"scores": [-1, 2], "label": [-1]}

    play(scenario, called=[CLASSIFIER])


def test_an_encoder_takes_texts_or_token_ids(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        config = (await stub_of(router).ModelConfig(pb.ModelConfigRequest(name="encoder"))).config
        names = {tensor.name: tensor.optional for tensor in config.input}
        assert names == dict.fromkeys(
            ("text", "input_ids", "attention_mask", "token_type_ids"), True
        )

    play(scenario, called=ENCODER)
