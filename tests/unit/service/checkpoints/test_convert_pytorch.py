"""`shaperouterd convert` reads the tensors of pytorch_model.bin and runs no code from it."""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.numpy import load_file

from harness.mutation import mutated
from shaperouter_service.checkpoints.conversion import convert_directory
from shaperouter_service.checkpoints.conversion.pytorch import read_state_dict
from shaperouter_service.commands.group import cli
from shaperouter_service.errors import StartupError

PICKLES = Path(__file__).parents[3] / "goldens" / "pickles"
LAYOUTS = ("archive", "legacy")
# Files of tokenizers of all families, as Transformers calls them.
TOKENIZER_FILES = (
    "bpe.codes",
    "merges.txt",
    "sentencepiece.bpe.model",
    "source.spm",
    "spiece.model",
    "target.spm",
    "target_vocab.json",
    "tokenizer_config.json",
    "vocab.txt",
    "words.tiktoken",
)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    directory = tmp_path / "source"
    directory.mkdir()
    (directory / "config.json").write_text("{}")
    (directory / "tokenizer.json").write_text('{"model": {}}')
    (directory / "README.md").write_text("not part of the model")
    shutil.copyfile(PICKLES / "archive.bin", directory / "pytorch_model.bin")
    return directory


@pytest.mark.parametrize("layout", LAYOUTS)
def test_tensors_equal_those_that_pytorch_saved(layout: str) -> None:
    state = read_state_dict(PICKLES / f"{layout}.bin")
    expected = load_file(PICKLES / "tensors.safetensors")
    assert state.layouts.keys() == expected.keys()
    for name, tensor in expected.items():
        found = state.tensor(state.layouts[name])
        assert (found.dtype, found.shape) == (tensor.dtype, tensor.shape), name
        np.testing.assert_array_equal(found, tensor)


def test_a_tied_tensor_is_written_once(source: Path, tmp_path: Path) -> None:
    convert_directory(source, tmp_path / "target")
    expected = load_file(PICKLES / "tensors.safetensors")
    made = load_file(tmp_path / "target" / "model.safetensors")
    assert made.keys() == expected.keys() - {"head"}
    for name, tensor in made.items():
        np.testing.assert_array_equal(tensor, expected[name])


def test_an_untied_model_keeps_both_names(source: Path, tmp_path: Path) -> None:
    (source / "config.json").write_text('{"tie_word_embeddings": false}')
    convert_directory(source, tmp_path / "target")
    assert "head" in load_file(tmp_path / "target" / "model.safetensors")


def test_configuration_and_tokenizer_are_copied(source: Path, tmp_path: Path) -> None:
    convert_directory(source, tmp_path / "target")
    assert {path.name for path in (tmp_path / "target").iterdir()} == {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
    }


@pytest.mark.parametrize("name", TOKENIZER_FILES)
def test_every_file_of_a_tokenizer_is_copied(source: Path, tmp_path: Path, name: str) -> None:
    (source / name).write_bytes(b"tokenizer")
    convert_directory(source, tmp_path / "target")
    assert (tmp_path / "target" / name).read_bytes() == b"tokenizer"


def test_shards_are_read_by_their_index(source: Path, tmp_path: Path) -> None:
    (source / "pytorch_model.bin").rename(source / "pytorch_model-00001-of-00001.bin")
    index = {"weight_map": {"embedding": "pytorch_model-00001-of-00001.bin"}}
    (source / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    result = CliRunner().invoke(cli, ["convert", str(source), str(tmp_path / "target")])
    assert (result.exit_code, result.output) == (
        0,
        f"converted {source} to {tmp_path / 'target'}\n",
    )
    made = tmp_path / "target"
    assert "embedding" in load_file(made / "model.safetensors")
    assert not (made / "pytorch_model.bin.index.json").exists()


class RunsCode:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("ran",)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_pickle_that_names_code_is_refused_and_nothing_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    monkeypatch.chdir(tmp_path)
    hostile = tmp_path / "hostile.bin"
    if layout == "archive":
        with zipfile.ZipFile(hostile, "w") as archive:
            archive.writestr("x/data.pkl", pickle.dumps(RunsCode(), protocol=2))
    else:
        hostile.write_bytes(pickle.dumps(RunsCode(), protocol=2))
    with pytest.raises(StartupError, match=r"it names \w+\.mkdir, which tensors do not need"):
        read_state_dict(hostile)
    assert not (tmp_path / "ran").exists()


def archive_with(state: bytes, tmp_path: Path) -> Path:
    path = tmp_path / "made.bin"
    with zipfile.ZipFile(PICKLES / "archive.bin") as archive, zipfile.ZipFile(path, "w") as made:
        for entry in archive.infolist():
            is_state = entry.filename.endswith("data.pkl")
            made.writestr(entry.filename, state if is_state else archive.read(entry))
    return path


def of_one_tensor(shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> bytes:
    """A pickled state dict of one tensor of storage 0, which has 28 numbers.

    It is put together by hand: PyTorch's names cannot be pickled where PyTorch is not.
    """

    def plain(value: object) -> bytes:
        return pickle.dumps(value, protocol=2)[2:-1]

    storage = (
        b"(" + plain("storage") + b"ctorch\nFloatStorage\n" + plain("0") + plain("cpu") + plain(28)
    )
    return (
        b"\x80\x02}"
        + plain("a")
        + b"ctorch._utils\n_rebuild_tensor_v2\n("
        + (storage + b"tQ" + plain(offset) + plain(shape) + plain(strides))
        + b"\x89NtRs."
    )


def test_a_tensor_within_its_storage_is_read(tmp_path: Path) -> None:
    state = read_state_dict(archive_with(of_one_tensor((2, 3), (4, 1), 21), tmp_path))
    embedding = load_file(PICKLES / "tensors.safetensors")["embedding"].reshape(-1)
    expected = np.stack([embedding[21:24], embedding[25:28]])
    np.testing.assert_array_equal(state.tensor(state.layouts["a"]), expected)


@pytest.mark.parametrize(
    ("shape", "strides", "offset"),
    [
        ((29,), (1,), 0),
        ((2, 3), (4, 1), 22),
        ((1,), (1,), 28),
        ((1,), (1,), -1),
        ((2,), (-1,), 5),
        ((2**40,), (0,), 0),
        ((2, 2), (2,), 0),
    ],
)
def test_a_tensor_beyond_its_storage_is_refused(
    tmp_path: Path, shape: tuple[int, ...], strides: tuple[int, ...], offset: int
) -> None:
    with pytest.raises(StartupError, match="cannot be read as tensors of PyTorch"):
        read_state_dict(archive_with(of_one_tensor(shape, strides, offset), tmp_path))


def test_a_pickle_cannot_set_attributes(tmp_path: Path) -> None:
    # BUILD would set attributes: a shape that was never checked, and a check that checks nothing.
    change = (
        b"}(X\x05\x00\x00\x00shapeM\xff\xff\x85X\x05\x00\x00\x00checkccollections\nOrderedDict\nub"
    )
    state = of_one_tensor((2,), (1,)).removesuffix(b"s.") + change + b"s."
    layout = read_state_dict(archive_with(state, tmp_path)).layouts["a"]
    assert layout.shape == (2,)
    assert layout.check.__name__ == "check"


def test_any_error_of_the_archive_is_a_refusal(tmp_path: Path) -> None:
    path = archive_with(of_one_tensor((2,), (1,)), tmp_path)
    whole = bytearray(path.read_bytes())
    # Marks the entry of the storage as encrypted, in both places that say so.
    with zipfile.ZipFile(path) as archive:
        entry = next(each for each in archive.infolist() if each.filename.endswith("data/0"))
    whole[entry.header_offset + 6] |= 1
    central = whole.index(b"PK\x01\x02")
    while not whole[central + 46 :].startswith(entry.filename.encode()):
        central = whole.index(b"PK\x01\x02", central + 1)
    whole[central + 8] |= 1
    path.write_bytes(whole)
    state = read_state_dict(path)
    with pytest.raises(StartupError, match=r"as tensors of PyTorch: .*encrypted"):
        state.tensor(state.layouts["a"])


def test_a_storage_of_another_size_is_refused(tmp_path: Path) -> None:
    path = archive_with(of_one_tensor((2,), (1,)), tmp_path)
    state = read_state_dict(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data/0", b"12345678")
        archive.writestr("archive/data.pkl", of_one_tensor((2,), (1,)))
    state = read_state_dict(path)
    with pytest.raises(StartupError, match="storage 0 must have 112 bytes, got 8"):
        state.tensor(state.layouts["a"])


@pytest.mark.parametrize("state", [[1, 2], {"a": 1}, {1: "b"}], ids=str)
def test_a_file_that_is_no_state_dict_is_refused(tmp_path: Path, state: Any) -> None:
    with pytest.raises(StartupError, match="cannot be read as tensors of PyTorch"):
        read_state_dict(archive_with(pickle.dumps(state, protocol=2), tmp_path))


def test_tuples_that_are_nested_too_deep_are_refused(tmp_path: Path) -> None:
    # Python's C code would hash this key by recursion, without a limit.
    deep_key = b"\x80\x02})" + pickle.TUPLE1 * 10**6 + b"K\x01s."
    with pytest.raises(StartupError, match="tuples must be at most 8 deep, got 9"):
        read_state_dict(archive_with(deep_key, tmp_path))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_damaged_files_are_read_or_refused(tmp_path: Path, layout: str) -> None:
    source = random.Random(layout)
    whole = (PICKLES / f"{layout}.bin").read_bytes()
    for _ in range(300):
        damaged = tmp_path / "damaged.bin"
        damaged.write_bytes(mutated(whole, source))
        try:
            state = read_state_dict(damaged)
            for tensor in state.layouts.values():
                state.tensor(tensor)
        except StartupError:
            pass


def test_a_directory_without_weights_is_refused(source: Path, tmp_path: Path) -> None:
    (source / "pytorch_model.bin").unlink()
    with pytest.raises(StartupError, match="has no weights to convert: expected pytorch_model"):
        convert_directory(source, tmp_path / "target")
