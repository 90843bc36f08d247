"""``shaperouter infer`` and ``shaperouter embed``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from click.testing import CliRunner

from shaperouter._cli._main import cli
from shaperouter.v1 import inference_pb2, model_pb2

if TYPE_CHECKING:
    from conftest import FakeShaperouter

FP32, INT32 = inference_pb2.DATA_TYPE_FP32, inference_pb2.DATA_TYPE_INT32


def run(fake: FakeShaperouter, *words: str, text: str = "") -> Any:
    return CliRunner().invoke(cli, ["--address", fake.address, *words], input=text)


@pytest.fixture
def double(fake: FakeShaperouter) -> FakeShaperouter:
    """A service with a function of integers."""
    spec = model_pb2.TensorSpec(name="x", dtype=INT32, shape=[-1])
    call = model_pb2.CallSpec(inputs=[spec], compiled=True)
    fake.models = [model_pb2.Model(name="double", call=call)]
    array = np.array([[1.0, 2.0]], np.float32)
    output = inference_pb2.Tensor(name="y", dtype=FP32, shape=[1, 2], content=array.tobytes())
    fake.inference = inference_pb2.InferResponse(outputs=[output])
    return fake


def sent(fake: FakeShaperouter) -> inference_pb2.Tensor:
    request = fake.requests[-1]
    assert isinstance(request, inference_pb2.InferRequest)
    (tensor,) = request.inputs
    return tensor


def test_json_is_sent_with_the_types_of_the_model(double: FakeShaperouter) -> None:
    result = run(double, "infer", "-", "--model", "double", text='{"x": [1, 2]}')
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == {"y": [[1.0, 2.0]]}
    assert sent(double).dtype == INT32
    assert sent(double).content == np.array([1, 2], np.int32).tobytes()


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"x": [1, NaN]}', "must be INT32, got float64"),
        ('{"x": [1.5]}', "must be INT32, got float64"),
        ('{"x": [4294967296]}', "has values that INT32 cannot hold"),
        ('{"x": [[1], [1, 2]]}', "must be an array"),
        ("[1]", "must hold a JSON object"),
        ("{", "cannot be read"),
    ],
)
def test_json_that_is_no_input_is_refused(double: FakeShaperouter, text: str, fault: str) -> None:
    result = run(double, "infer", "-", "--model", "double", text=text)
    assert result.exit_code == 2
    assert fault in result.stderr


def test_arrays_are_read_and_saved_as_files(double: FakeShaperouter, tmp_path: Path) -> None:
    given, saved = tmp_path / "x.npy", tmp_path / "y.npz"
    np.save(given, np.array([5], np.int32))
    result = run(double, "infer", str(given), "--model", "double", "--save", str(saved))
    assert result.exit_code == 0, result.output
    assert sent(double).name == "x"
    assert np.load(saved)["y"].tolist() == [[1.0, 2.0]]


def test_a_file_with_objects_is_refused(double: FakeShaperouter, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([{}], dtype=object))
    result = run(double, "infer", str(tmp_path / "x.npy"), "--model", "double")
    assert result.exit_code == 2
    assert "allow_pickle=False" in result.stderr


def test_each_line_is_embedded(fake: FakeShaperouter) -> None:
    array = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
    output = inference_pb2.Tensor(
        name="embedding", dtype=FP32, shape=[2, 2], content=array.tobytes()
    )
    fake.inference = inference_pb2.InferResponse(outputs=[output])
    result = run(fake, "embed", text="one\ntwo\n")
    assert [json.loads(line) for line in result.stdout.splitlines()] == [
        {"text": "one", "embedding": [1.0, 2.0]},
        {"text": "two", "embedding": [3.0, 4.0]},
    ]
    assert list(sent(fake).values) == [b"one", b"two"]
