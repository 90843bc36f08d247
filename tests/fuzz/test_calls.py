"""A service answers mutated calls of functions and text encoders, or refuses them clearly."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import Message
from grpc import StatusCode, aio

from harness.mutation import mutate_message, mutated
from harness.service import Service, kept_compilations, serving
from harness.tools import real_model
from harness.waiting import TIMEOUT
from shaperouter.v1 import inference_pb2
from shaperouter_service.edge.inference.grpc.tensors import add_tensor
from shaperouter_service.edge.inference.stubs import grpc_service_pb2 as open_inference
from shaperouter_service.edge.tfserving.stubs.tensorflow.core.example.example_pb2 import Example
from shaperouter_service.edge.tfserving.stubs.tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    input_pb2,
    model_pb2,
    predict_pb2,
    regression_pb2,
)
from shaperouter_service.edge.tfserving.tensors import tensor_to_message
from shaperouter_service.wire.tensors import tensors_to_messages

COUNT = int(os.environ.get("FUZZ_REQUESTS", "400"))
TESTS = Path(__file__).parents[1]
CONNECTIONS = 4

EXAMPLE = Example()
EXAMPLE.features.feature["x"].float_list.value.extend([1.0, 2.0, 3.0])
BYTES = np.array([EXAMPLE.SerializeToString()] * 2, object)
# Valid calls of each model.
CALLS: list[tuple[str, dict[str, np.ndarray[Any, Any]]]] = [
    (
        "many",
        {
            "a": np.ones((2, 3, 3), np.float32),
            "b": np.ones((2, 3), np.int32),
            "flag": np.ones((2, 3), np.bool_),
        },
    ),
    ("classify", {"examples": BYTES}),
    ("regress", {"examples": BYTES}),
    ("embed", {"text": np.array([b"a cat", b"a dog"], object)}),
    ("embed", {"input_ids": np.ones((2, 4), np.int64), "attention_mask": np.ones((2, 4), int)}),
]
EXAMPLES = input_pb2.Input(example_list={"examples": [EXAMPLE, EXAMPLE]})
CONTEXT = input_pb2.Input(example_list_with_context={"examples": [EXAMPLE], "context": EXAMPLE})

# What a call can deserve. INTERNAL, UNKNOWN and UNAVAILABLE would be our defects.
DESERVED = {
    StatusCode.OK,
    StatusCode.INVALID_ARGUMENT,
    StatusCode.NOT_FOUND,
    StatusCode.RESOURCE_EXHAUSTED,
    StatusCode.FAILED_PRECONDITION,
}


def infer_request(name: str, inputs: dict[str, Any], *, raw: bool) -> Message:
    """A call over Open Inference, with tensors as bytes or as lists of values."""
    # Tensors are written to responses, whose fields have the same names.
    written = open_inference.ModelInferResponse()
    for each, array in inputs.items():
        add_tensor(written, each, array, raw=raw)
    request = open_inference.ModelInferRequest(model_name=name, id="7")
    for output in written.outputs:
        request.inputs.add().ParseFromString(output.SerializeToString())
    request.raw_input_contents.extend(written.raw_output_contents)
    return request


def seeds() -> dict[str, list[Message]]:
    """Requests that are well, by method."""
    infer = [infer_request(*call, raw=raw) for call in CALLS for raw in (True, False)]
    spec = model_pb2.ModelSpec
    return {
        "inference.GRPCInferenceService/ModelInfer": infer,
        "inference.GRPCInferenceService/ModelStreamInfer": infer,
        "inference.GRPCInferenceService/ModelMetadata": [
            open_inference.ModelMetadataRequest(name=name, version="1") for name, _ in CALLS
        ],
        "tensorflow.serving.PredictionService/Predict": [
            predict_pb2.PredictRequest(
                model_spec=spec(name=name, signature_name="serving_default"),
                inputs={each: tensor_to_message(array) for each, array in inputs.items()},
            )
            for name, inputs in CALLS
        ],
        "tensorflow.serving.PredictionService/Classify": [
            classification_pb2.ClassificationRequest(model_spec=spec(name="classify"), input=given)
            for given in (EXAMPLES, CONTEXT)
        ],
        "tensorflow.serving.PredictionService/Regress": [
            regression_pb2.RegressionRequest(model_spec=spec(name="regress"), input=given)
            for given in (EXAMPLES, CONTEXT)
        ],
        "tensorflow.serving.PredictionService/GetModelMetadata": [
            get_model_metadata_pb2.GetModelMetadataRequest(
                model_spec=spec(name=name), metadata_field=["signature_def"]
            )
            for name, _ in CALLS
        ],
        "tensorflow.serving.ModelService/GetModelStatus": [
            get_model_status_pb2.GetModelStatusRequest(model_spec=spec(name="many"))
        ],
        "shaperouter.v1.InferenceService/Infer": [
            inference_pb2.InferRequest(
                model=name, inputs=tensors_to_messages(inputs), explain=True, truncate=True
            )
            for name, inputs in CALLS
        ],
    }


SEEDS = seeds()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Functions of numbers and of serialized examples, and a text encoder."""
    directory = tmp_path_factory.mktemp("functions")
    subprocess.run(
        [sys.executable, "-m", "harness.save_functions_to_fuzz", directory],
        env=os.environ | {"PYTHONPATH": str(TESTS)},
        check=True,
    )
    with serving(
        *(f"--model={name}={directory / name}" for name in ("many", "classify", "regress")),
        f"--model=embed={real_model('all-MiniLM-L6-v2')}",
        env=kept_compilations(),
    ) as service:
        yield service


async def send(channel: aio.Channel, method: str, data: bytes) -> StatusCode:
    """Sends one request and reads its responses to the end."""
    try:
        if method.endswith("ModelStreamInfer"):
            stream = channel.stream_stream(f"/{method}")(iter([data]), timeout=TIMEOUT)
            async for _ in stream:
                pass
        else:
            await channel.unary_unary(f"/{method}")(data, timeout=TIMEOUT)
    except aio.AioRpcError as error:
        return error.code()
    return StatusCode.OK


async def send_mutated(channel: aio.Channel, source: random.Random) -> StatusCode:
    """Sends a request whose message, or whose bytes, are damaged in a few places."""
    method = source.choice(list(SEEDS))
    seed = source.choice(SEEDS[method])
    request = type(seed).FromString(seed.SerializeToString())
    for _ in range(source.randint(1, 3)):
        mutate_message(request, source)
    data = request.SerializeToString()
    if source.random() < 0.2:
        data = mutated(data, source)
    code = await send(channel, method, data)
    assert code in DESERVED, f"{code} for {method}: {data!r}"
    return code


async def send_all(service: Service, source: random.Random) -> set[StatusCode]:
    """Sends requests on several connections at once; returns how they ended."""

    async def connection() -> set[StatusCode]:
        async with aio.insecure_channel(service.address) as channel:
            return {await send_mutated(channel, source) for _ in range(COUNT // CONNECTIONS)}

    return set().union(*await asyncio.gather(*(connection() for _ in range(CONNECTIONS))))


async def send_seeds(service: Service) -> Sequence[StatusCode]:
    """Sends every request that is well."""
    async with aio.insecure_channel(service.address) as channel:
        return [
            await send(channel, method, request.SerializeToString())
            for method, requests in SEEDS.items()
            for request in requests
        ]


@pytest.mark.timeout(900)
def test_mutated_calls_are_answered_or_refused(service: Service) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    codes = asyncio.run(send_all(service, random.Random(seed)))
    assert {StatusCode.OK, StatusCode.INVALID_ARGUMENT} <= codes
    assert not service.events("unexpected exception")
    assert not service.events("worker lost")
    assert set(asyncio.run(send_seeds(service))) == {StatusCode.OK}
