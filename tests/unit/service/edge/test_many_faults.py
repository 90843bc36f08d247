"""A request with thousands of entries or faults is refused before all of them are worded."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from shaperouter.v1 import generation_pb2, inference_pb2
from shaperouter_service.edge.http.openai.requests import chat_request
from shaperouter_service.edge.http.openai.response_requests import response_request
from shaperouter_service.edge.inference.grpc.tensors import tensors_from_request
from shaperouter_service.edge.inference.http.bodies import infer_request
from shaperouter_service.edge.inference.stubs.grpc_service_pb2 import ModelInferRequest
from shaperouter_service.edge.tfserving.stubs.tensorflow.core.framework.tensor_pb2 import (
    TensorProto,
)
from shaperouter_service.edge.tfserving.tensors import tensors_from_messages
from shaperouter_service.errors import MAX_VIOLATIONS, InvalidRequestError
from shaperouter_service.generation.limits import MAX_MESSAGES, MAX_TOOLS
from shaperouter_service.tensors.shapes import MAX_TENSORS
from shaperouter_service.wire.calls import inference_from_message
from shaperouter_service.wire.chat import chat_from_message

MANY = 10_000
USER = {"role": "user", "content": "Hi."}
TENSOR = {"name": "x", "shape": [1], "datatype": "FP32", "data": [1.0]}


def chat(**fields: Any) -> Callable[[], object]:
    return lambda: chat_request({"model": "m", "messages": [USER], **fields})


def inferred(**fields: Any) -> Callable[[], object]:
    body = json.dumps({"inputs": [TENSOR], **fields}).encode()
    return lambda: infer_request(body, None, model="m", version="")


@pytest.mark.parametrize(
    "read",
    [
        chat(messages=[{}] * MANY),
        chat(messages=[{"role": "assistant", "tool_calls": [0] * MANY}]),
        chat(tools=[{}] * MANY),
        lambda: response_request({"model": "m", "input": [0] * MANY}),
        inferred(inputs=[0] * MANY),
        inferred(inputs=[TENSOR | {"parameters": {str(index): 0 for index in range(MANY)}}]),
        inferred(**{str(index): 0 for index in range(MANY)}),
        lambda: tensors_from_request(ModelInferRequest(inputs=[{}] * MANY)),
        lambda: tensors_from_messages({str(index): TensorProto() for index in range(MAX_TENSORS)}),
        lambda: inference_from_message(inference_pb2.InferRequest(inputs=[{}] * MANY)),
    ],
    ids=[
        "messages",
        "tool calls",
        "tools",
        "items of a response",
        "inputs that are no objects",
        "parameters of a tensor",
        "unknown fields",
        "tensors of the Open Inference Protocol",
        "tensors of TensorFlow Serving",
        "tensors",
    ],
)
def test_no_more_faults_are_looked_for_once_there_are_many(read: Callable[[], object]) -> None:
    with pytest.raises(InvalidRequestError, match="and 56 more") as caught:
        read()
    assert len(caught.value.violations) == MAX_VIOLATIONS


TOO_MANY = MAX_TENSORS + 1


@pytest.mark.parametrize(
    ("read", "rule"),
    [
        (
            lambda: chat_from_message(
                generation_pb2.GenerateRequest(messages=[{}] * (MAX_MESSAGES + 1))
            ),
            "messages: must have at most 4096 messages, got 4097",
        ),
        (
            lambda: chat_from_message(
                generation_pb2.GenerateRequest(tools=["{}"] * (MAX_TOOLS + 1))
            ),
            "tools: must have at most 1024 tools, got 1025",
        ),
        (
            lambda: tensors_from_messages({str(index): TensorProto() for index in range(TOO_MANY)}),
            "inputs: must have at most 4096 tensors, got 4097",
        ),
        (inferred(inputs=[{}] * TOO_MANY), "inputs: must have at most 4096 tensors, got 4097"),
        (inferred(outputs=[{}] * TOO_MANY), "outputs: must have at most 4096 tensors, got 4097"),
    ],
)
def test_entries_are_counted_before_any_is_read(read: Callable[[], object], rule: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        read()
    assert str(caught.value) == rule
