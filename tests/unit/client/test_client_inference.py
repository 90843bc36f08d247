"""Calls of functions and text encoders: what is sent, and what comes back."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

from shaperouter import (
    Classification,
    Client,
    DataType,
    InternalError,
    InvalidArgumentError,
    RankedDocument,
)
from shaperouter.v1 import generation_pb2, inference_pb2, model_pb2, signature_pb2

if TYPE_CHECKING:
    from conftest import FakeShaperouter

CALL = signature_pb2.Signature(
    model="f", kind=signature_pb2.GRAPH_KIND_CALL, rows=4, length=128, beams=1, further=[64]
)


def numbers(name: str, values: Any) -> inference_pb2.Tensor:
    array = np.asarray(values, dtype=np.float32)
    return inference_pb2.Tensor(
        name=name,
        dtype=inference_pb2.DATA_TYPE_FP32,
        shape=array.shape,
        content=array.tobytes(),
    )


def answer(fake: FakeShaperouter, *outputs: inference_pb2.Tensor) -> None:
    fake.inference = inference_pb2.InferResponse(
        outputs=outputs,
        metadata=inference_pb2.InferMetadata(
            request_id="req-7",
            model="f",
            rows=3,
            device_seconds=0.5,
            worker="worker-0",
            graphs=[generation_pb2.GraphUse(asked=CALL, served=CALL, calls=1)],
            routes=[
                generation_pb2.Route(
                    options=[generation_pb2.RouteOption(worker="worker-0", call=CALL)]
                )
            ],
        ),
    )


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (np.array([[True, False]]), "BOOL"),
        (np.arange(6, dtype=np.uint16).reshape(2, 3), "UINT16"),
        (np.arange(6, dtype=np.int64)[::2], "INT64"),
        (np.array(1.5, dtype=np.float16), "FP16"),
        (np.array([1.5, -2.0], dtype=">f4"), "FP32"),
        (np.array([1.5, -2.0], dtype=ml_dtypes.bfloat16), "BF16"),
    ],
)
def test_arrays_are_sent_and_returned_as_they_are(
    fake: FakeShaperouter, client: Client, value: np.ndarray[Any, Any], dtype: str
) -> None:
    client.infer("f", {"x": value})
    request = fake.requests[-1]
    assert isinstance(request, inference_pb2.InferRequest)
    (tensor,) = request.inputs
    assert inference_pb2.DataType.Name(tensor.dtype) == f"DATA_TYPE_{dtype}"
    answer(fake, tensor)
    found = client.infer("f", {"x": value})["x"]
    np.testing.assert_array_equal(found, value.astype(found.dtype))
    assert found.shape == value.shape


@pytest.mark.parametrize("value", [["a", "ä"], [b"a", "ä".encode()], np.array(["a", "ä"])])
def test_texts_are_sent_as_bytes(fake: FakeShaperouter, client: Client, value: Any) -> None:
    client.infer("f", {"text": value}, truncate=True)
    request = fake.requests[-1]
    assert isinstance(request, inference_pb2.InferRequest)
    assert request.truncate
    (tensor,) = request.inputs
    assert tensor.dtype == inference_pb2.DATA_TYPE_BYTES
    assert list(tensor.values) == [b"a", "ä".encode()]
    answer(fake, tensor)
    assert client.infer("f", {"text": value})["text"].tolist() == [b"a", "ä".encode()]


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        ([b"ab\0\0", b"\0"], [b"ab\0\0", b"\0"]),
        ([["ab\0"]], [b"ab\0"]),
        (b"\0\1\0", [b"\0\1\0"]),
    ],
)
def test_texts_and_bytes_keep_nuls_at_their_end(
    fake: FakeShaperouter, client: Client, value: Any, sent: list[bytes]
) -> None:
    client.infer("f", {"x": value})
    assert list(fake.requests[-1].inputs[0].values) == sent


def test_the_result_says_how_the_call_was_served(fake: FakeShaperouter, client: Client) -> None:
    answer(fake, numbers("y", [1, 2, 3]))
    metadata = client.infer("f", {"x": [1]}, outputs=["y"], explain=True).metadata
    assert (metadata.rows, metadata.device_seconds, metadata.worker) == (3, 0.5, "worker-0")
    assert str(metadata.graphs[0].served) == "f call 4x128x64"
    (option,) = metadata.routes[0].options
    assert (option.call, option.decode) == (metadata.graphs[0].served, None)


@pytest.mark.parametrize(
    ("inputs", "fault"),
    [
        ({"x": [[1], [2, 3]]}, "inputs.x: must be an array"),
        ({"x": [1j]}, "inputs.x: must not have the data type complex128"),
        ({"x": [1, None]}, "inputs.x: must be a str"),
        ({"x": ["a", 1]}, "inputs.x: must be a str, got 1"),
        ([1, 2], "inputs: must be arrays by name"),
    ],
)
def test_what_is_no_tensor_is_refused(client: Client, inputs: Any, fault: str) -> None:
    with pytest.raises(InvalidArgumentError, match=fault):
        client.infer("f", inputs)


def test_without_numpy_the_error_says_how_to_install_it(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(ImportError, match=r"pip install 'shaperouter\[numpy\]'"):
        client.infer("f", {"x": [1]})


# Text encoders.


def test_embeddings_need_no_numpy(
    fake: FakeShaperouter, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(fake, numbers("embedding", [[1, 2], [3, 4.5]]))
    monkeypatch.setitem(sys.modules, "numpy", None)
    assert client.embed(["a", "b"]).vectors == ((1.0, 2.0), (3.0, 4.5))
    request = fake.requests[-1]
    assert isinstance(request, inference_pb2.InferRequest)
    assert [list(tensor.values) for tensor in request.inputs] == [[b"a", b"b"]]


def test_a_text_alone_is_embedded_alone(fake: FakeShaperouter, client: Client) -> None:
    answer(fake, numbers("embedding", [[1, 2]]))
    assert client.embed("a").vectors == ((1.0, 2.0),)


def test_classes_have_labels_and_scores(fake: FakeShaperouter, client: Client) -> None:
    labels = inference_pb2.Tensor(
        name="label", dtype=inference_pb2.DATA_TYPE_BYTES, shape=[2], values=[b"cat", b"dog"]
    )
    answer(fake, numbers("scores", [[0.75, 0.25], [0.5, 1.5]]), labels)
    assert client.classify(["a", "b"], ["c", "d"]) == [
        Classification(label="cat", score=0.75, scores=(0.75, 0.25)),
        Classification(label="dog", score=1.5, scores=(0.5, 1.5)),
    ]
    request = fake.requests[-1]
    assert isinstance(request, inference_pb2.InferRequest)
    assert [tensor.name for tensor in request.inputs] == ["text", "text_pair"]


def test_documents_are_ranked_by_their_scores(fake: FakeShaperouter, client: Client) -> None:
    answer(fake, numbers("scores", [[0.5], [2.0], [-1.0]]))
    assert client.rerank("q", ["a", "b", "c"], top=2) == [
        RankedDocument(index=1, score=2.0, document="b"),
        RankedDocument(index=0, score=0.5, document="a"),
    ]
    request = fake.requests[-1]
    assert isinstance(request, inference_pb2.InferRequest)
    assert list(request.inputs[0].values) == [b"q", b"q", b"q"]


def test_a_document_alone_is_ranked_alone(fake: FakeShaperouter, client: Client) -> None:
    answer(fake, numbers("scores", [[0.5]]))
    assert client.rerank("q", "abc") == [RankedDocument(index=0, score=0.5, document="abc")]


@pytest.mark.parametrize(
    ("documents", "top", "fault"),
    [
        (b"abc", None, "documents: must be a list of texts"),
        (["a", 5], None, r"documents\[1\]: must be a str, got 5"),
        (["a"], 0, "top: must be at least 1, got 0"),
        (["a"], -1, "top: must be at least 1, got -1"),
        (["a"], 1.5, "top: must be an integer"),
    ],
)
def test_what_cannot_be_ranked_is_refused_before_the_call(
    fake: FakeShaperouter, client: Client, documents: Any, top: Any, fault: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=fault):
        client.rerank("q", documents, top=top)
    assert not fake.requests


README = Path(__file__).parents[3] / "client" / "README.md"


def test_the_readmes_calls_run_as_written(fake: FakeShaperouter, client: Client) -> None:
    text = README.read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    labels = inference_pb2.Tensor(
        name="label", dtype=inference_pb2.DATA_TYPE_BYTES, shape=[2], values=[b"cat", b"dog"]
    )
    matrix = [[1.0], [2.0]]
    answer(
        fake, numbers("y", matrix), numbers("embedding", matrix), numbers("scores", matrix), labels
    )
    found = [block for block in blocks if re.search(r"client\.(infer|embed)", block)]
    assert len(found) == 2
    for block in found:
        scope = {"client": client, "np": np, "documents": ["a", "b"]}
        exec(compile(block, "README.md", "exec"), scope)


def test_an_answer_without_scores_is_an_error(fake: FakeShaperouter, client: Client) -> None:
    answer(fake, numbers("other", [[1]]))
    with pytest.raises(InternalError, match="without embedding"):
        client.embed("a")


# Models.


def test_a_model_says_how_it_is_called(fake: FakeShaperouter, client: Client) -> None:
    spec = {"name": "x", "dtype": inference_pb2.DATA_TYPE_FP32, "shape": [-1, 3]}
    axis = {"name": "batch", "inputs": {"x": 0}, "outputs": {"y": 0}, "ladder": [1, 8]}
    fake.models = [
        model_pb2.Model(
            name="f",
            kind=model_pb2.MODEL_KIND_FUNCTION,
            call=model_pb2.CallSpec(inputs=[spec], batch=axis, compiled=True, labels=["a"]),
        )
    ]
    call = client.model("f").call
    assert call is not None
    assert (call.inputs[0].dtype, call.inputs[0].shape) == (DataType.FP32, (None, 3))
    assert call.batch is not None
    assert (call.batch.ladder, call.labels, call.compiled) == ((1, 8), ("a",), True)
