"""The memory of tensors in flight is bounded, by all doors: a router here, and fake workers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from google.rpc import error_details_pb2
from grpc import StatusCode

from harness.fake_model import describe_function
from harness.router import wait_until
from shaperouter.v1 import inference_pb2
from shaperouter_service.edge.inference.stubs import grpc_service_pb2 as pb
from shaperouter_service.edge.inference.stubs.grpc_service_pb2_grpc import GRPCInferenceServiceStub
from shaperouter_service.edge.tfserving.stubs.tensorflow_serving.apis import (
    classification_pb2,
    predict_pb2,
    prediction_service_pb2_grpc,
)
from shaperouter_service.edge.tfserving.tensors import tensor_to_message as to_tensor_proto
from shaperouter_service.wire.tensors import tensor_to_message

if TYPE_CHECKING:
    import httpx2 as httpx

    from harness.fake_worker import FakeWorker
    from harness.router import Play, Router

DOUBLE = [describe_function("double")]
# 12,000 bytes as a tensor, and as many in a message.
X = np.zeros((1000, 3), np.float32)
CALL = inference_pb2.InferRequest(model="double", inputs=[tensor_to_message("x", X)])
CALL_BYTES = CALL.ByteSize() + X.nbytes


def open_inference(router: Router) -> Awaitable[object]:
    request = pb.ModelInferRequest(model_name="double")
    request.inputs.add(name="x", datatype="FP32", shape=X.shape)
    request.raw_input_contents.append(X.tobytes())
    answer: Awaitable[object] = GRPCInferenceServiceStub(router.channel).ModelInfer(request)
    return answer


def predict(router: Router) -> Awaitable[object]:
    stub = prediction_service_pb2_grpc.PredictionServiceStub(router.channel)
    request = predict_pb2.PredictRequest(
        model_spec={"name": "double"}, inputs={"x": to_tensor_proto(X)}
    )
    answer: Awaitable[object] = stub.Predict(request)
    return answer


def classify(router: Router) -> Awaitable[object]:
    stub = prediction_service_pb2_grpc.PredictionServiceStub(router.channel)
    feature = {"a": {"bytes_list": {"value": [X.tobytes() * 2]}}}
    request = classification_pb2.ClassificationRequest(
        model_spec={"name": "double"},
        input={"example_list": {"examples": [{"features": {"feature": feature}}]}},
    )
    answer: Awaitable[object] = stub.Classify(request)
    return answer


@pytest.mark.parametrize(
    "call",
    [lambda router: router.inference.Infer(CALL), open_inference, predict, classify],
    ids=["shaperouter", "open inference", "predict", "classify"],
)
def test_a_call_that_takes_more_than_half_is_invalid(
    play: Play, call: Callable[[Router], Awaitable[object]]
) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        error = await router.error(call(router))
        assert error.code() is StatusCode.INVALID_ARGUMENT
        assert "half of this service's --max-tensor-memory, got 24" in (error.details() or "")
        assert not worker.calls

    # There is room for the tensors, or for the message, but not for both.
    play(scenario, called=DOUBLE, settings={"max_tensor_memory": 2 * 23_000})


def test_a_call_over_http_counts_with_its_body(http: Any) -> None:
    async def scenario(client: httpx.AsyncClient, _: Router, worker: FakeWorker) -> None:
        tensor = {"name": "x", "shape": X.shape, "datatype": "FP32"}
        tensor["parameters"] = {"binary_data_size": X.nbytes}
        head = json.dumps({"inputs": [tensor]}).encode()
        response = await client.post(
            "/v2/models/double/infer",
            content=head + X.tobytes(),
            headers={"inference-header-content-length": str(len(head))},
        )
        assert response.status_code == 400
        assert "half of this service's --max-tensor-memory, got 24" in response.json()["error"]

    http(scenario, called=DOUBLE, settings={"max_tensor_memory": 2 * 23_000})


def test_a_client_at_its_share_leaves_room_for_another(play: Play, detail: Any) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.call_script = [worker.hold]
        one, other = ((("x-client-id", name),) for name in ("one", "other"))
        held = [router.inference.Infer(CALL, metadata=one) for _ in range(2)]
        await wait_until(lambda: worker.running == 2)
        error = await router.error(router.inference.Infer(CALL, metadata=one))
        assert error.code() is StatusCode.RESOURCE_EXHAUSTED
        assert error.details() == (
            f"tensors take too much memory: limit {2 * CALL_BYTES} bytes of one client; "
            "send the request again later"
        )
        assert detail(error, error_details_pb2.ErrorInfo).reason == "TENSOR_MEMORY_FULL"
        held.append(router.inference.Infer(CALL, metadata=other))
        await wait_until(lambda: worker.running == 3)
        worker.released.set()
        await asyncio.gather(*held)
        await router.inference.Infer(CALL, metadata=one)

    play(scenario, called=DOUBLE, settings={"max_tensor_memory": 4 * CALL_BYTES})
