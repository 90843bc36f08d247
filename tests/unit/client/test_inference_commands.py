"""``shaperouter infer`` and ``shaperouter embed``."""

from __future__ import annotations

import json
import sys
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


def run(fake: FakeShaperouter, *words: str, text: str | bytes = "") -> Any:
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


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_unsigned_integers_can_be_given_as_json(double: FakeShaperouter, bits: int) -> None:
    double.models[0].call.inputs[0].dtype = getattr(inference_pb2, f"DATA_TYPE_UINT{bits}")
    result = run(double, "infer", "-", "--model", "double", text='{"x": [0, 255]}')
    assert result.exit_code == 0, result.output
    assert sent(double).content == np.array([0, 255], f"uint{bits}").tobytes()
    result = run(double, "infer", "-", "--model", "double", text='{"x": [-1]}')
    assert f"has values that UINT{bits} cannot hold" in result.stderr


def test_numbers_that_json_does_not_have_are_null(double: FakeShaperouter) -> None:
    output = double.inference.outputs[0]
    output.content = np.array([[np.nan, -np.inf]], np.float32).tobytes()
    result = run(double, "infer", "-", "--model", "double", text='{"x": [1]}')
    assert json.loads(result.stdout) == {"y": [[None, None]]}


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


@pytest.mark.parametrize("name", ["x.npy", "x.npz"])
@pytest.mark.parametrize("kept", [0.0, 0.5, 0.9])
def test_a_file_of_arrays_that_was_cut_off_is_refused(
    double: FakeShaperouter, tmp_path: Path, name: str, kept: float
) -> None:
    file = tmp_path / name
    array = np.arange(1000, dtype=np.int32)
    np.save(file, array) if name == "x.npy" else np.savez_compressed(file, x=array)
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * kept)])
    result = run(double, "infer", str(file), "--model", "double")
    assert result.exit_code == 2
    assert "Error: FILE: cannot be read: " in result.stderr


def test_a_file_of_arrays_with_wrong_bytes_is_refused(
    double: FakeShaperouter, tmp_path: Path
) -> None:
    file = tmp_path / "x.npz"
    np.savez_compressed(file, x=np.arange(1000, dtype=np.int32))
    content = bytearray(file.read_bytes())
    content[60:80] = b"\xff" * 20
    file.write_bytes(content)
    result = run(double, "infer", str(file), "--model", "double")
    assert result.exit_code == 2
    assert "Error: FILE: cannot be read: " in result.stderr


def test_saving_where_no_folder_is_fails_before_the_call(
    double: FakeShaperouter, tmp_path: Path
) -> None:
    saved = tmp_path / "nowhere" / "y.npz"
    result = run(double, "infer", "-", "--save", str(saved), text='{"x": [1]}')
    assert result.exit_code == 2
    assert "Error: --save: cannot be written: " in result.stderr
    assert not double.requests


def test_the_message_names_the_file_that_was_written(
    double: FakeShaperouter, tmp_path: Path
) -> None:
    result = run(double, "infer", "-", "--save", str(tmp_path / "y.old"), text='{"x": [1]}')
    assert result.stderr == f"saved y in {tmp_path / 'y.old.npz'}\n"
    assert np.load(tmp_path / "y.old.npz")["y"].tolist() == [[1.0, 2.0]]


def test_a_call_that_fails_leaves_files_as_they_are(
    double: FakeShaperouter, tmp_path: Path
) -> None:
    kept, new = tmp_path / "kept.npz", tmp_path / "new.npz"
    kept.write_bytes(b"earlier")
    for saved in (kept, new):
        result = run(double, "infer", "-", "--save", str(saved), text='{"x": [1.5]}')
        assert result.exit_code == 2
    assert kept.read_bytes() == b"earlier"
    assert not new.exists()


def test_outputs_of_any_name_and_type_are_saved_readably(
    double: FakeShaperouter, tmp_path: Path
) -> None:
    labels = inference_pb2.Tensor(
        name="label",
        dtype=inference_pb2.DATA_TYPE_BYTES,
        shape=[2, 1],
        values=[b"cat", "Bär".encode()],
    )
    double.inference.outputs[0].name = "file"
    double.inference.outputs.append(labels)
    saved = tmp_path / "y.npz"
    saved.write_bytes(bytes(10_000))
    result = run(double, "infer", "-", "--save", str(saved), text='{"x": [1]}')
    assert result.exit_code == 0, result.output
    with np.load(saved, allow_pickle=False) as found:
        assert found["file"].tolist() == [[1.0, 2.0]]
        assert found["label"].tolist() == [[b"cat"], ["Bär".encode()]]


def test_texts_that_arrays_of_bytes_would_change_are_not_saved(
    double: FakeShaperouter, tmp_path: Path
) -> None:
    double.inference.outputs[0].CopyFrom(
        inference_pb2.Tensor(
            name="y", dtype=inference_pb2.DATA_TYPE_BYTES, shape=[1], values=[b"a\0"]
        )
    )
    result = run(double, "infer", "-", "--save", str(tmp_path / "y.npz"), text='{"x": [1]}')
    assert result.exit_code == 1
    assert "y has a value that ends with NUL" in result.stderr


def test_infer_without_numpy_says_how_to_install_it(
    double: FakeShaperouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    result = run(double, "infer", "-", text='{"x": [1]}')
    assert result.exit_code == 1
    assert result.stderr == "Error: infer needs NumPy: pip install 'shaperouter[numpy]'\n"


@pytest.mark.parametrize(
    ("dtype", "number", "fault"),
    [
        ("FP16", "70000", "has 70000, which FP16 cannot hold"),
        ("FP32", "1e39", "has 1e+39, which FP32 cannot hold"),
        ("FP64", "1e400", "1e400 is too large for a 64-bit float"),
    ],
)
def test_numbers_that_would_become_infinite_are_refused(
    double: FakeShaperouter, dtype: str, number: str, fault: str
) -> None:
    double.models[0].call.inputs[0].dtype = inference_pb2.DataType.Value(f"DATA_TYPE_{dtype}")
    result = run(double, "infer", "-", text=f'{{"x": [1, {number}]}}')
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: FILE")
    assert fault in result.stderr


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


def test_only_line_breaks_separate_the_texts_to_embed(fake: FakeShaperouter) -> None:
    run(fake, "embed", text="one\u2028still one\r\n\ntwo\x0cstill two".encode())
    assert list(sent(fake).values) == ["one\u2028still one".encode(), b"", b"two\x0cstill two"]


@pytest.mark.parametrize(("command", "name"), [(["embed"], "TEXT"), (["infer", "-"], "FILE")])
def test_stdin_that_is_not_utf8_is_refused(
    fake: FakeShaperouter, command: list[str], name: str
) -> None:
    result = run(fake, *command, text=b"ab\xff")
    assert result.exit_code == 2
    assert f"Error: {name}: stdin is not UTF-8: byte 2 is 0xff" in result.stderr
    assert not fake.requests
