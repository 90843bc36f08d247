"""`shaperouterd convert` keeps the modules of sentence-transformers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from harness.state_dicts import write_state_dict
from shaperouter_service.checkpoints.conversion import convert_directory
from shaperouter_service.errors import StartupError

TENSORS = {"linear.weight": np.arange(6, dtype=np.float32).reshape(2, 3)}


def write_modules(source: Path, *modules: tuple[str, str]) -> None:
    listed = [("Transformer", ""), *modules]
    content = [{"type": f"sentence_transformers.models.{k}", "path": p} for k, p in listed]
    (source / "modules.json").write_text(json.dumps(content))


def write_json(path: Path, **values: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(values))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A model in safetensors with three modules; the dense one has a pytorch_model.bin."""
    source = tmp_path / "source"
    write_json(source / "config.json", model_type="bert")
    save_file(TENSORS, source / "model.safetensors")
    write_json(source / "1_Pooling" / "config.json", pooling_mode_cls_token=True)
    write_json(source / "2_Dense" / "config.json", in_features=3, out_features=2)
    write_state_dict(source / "2_Dense" / "pytorch_model.bin", TENSORS)
    write_modules(source, ("Pooling", "1_Pooling"), ("Dense", "2_Dense"), ("Normalize", "3_N"))
    return source


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "target"


def files(directory: Path) -> set[str]:
    found = directory.rglob("*")
    return {path.relative_to(directory).as_posix() for path in found if path.is_file()}


EXPECTED = {
    "1_Pooling/config.json",
    "2_Dense/config.json",
    "2_Dense/model.safetensors",
    "config.json",
    "model.safetensors",
    "modules.json",
}


def test_a_module_is_converted_though_the_model_has_safetensors(source: Path, target: Path) -> None:
    convert_directory(source, target)
    assert files(target) == EXPECTED
    for path in (target, target / "2_Dense"):
        made = load_file(path / "model.safetensors")
        assert made.keys() == TENSORS.keys()
        np.testing.assert_array_equal(made["linear.weight"], TENSORS["linear.weight"])
    pooling = json.loads((target / "1_Pooling" / "config.json").read_text())
    assert pooling == {"pooling_mode_cls_token": True}


def test_a_module_in_safetensors_is_copied_with_a_converted_model(
    source: Path, target: Path
) -> None:
    for folder, old, new in ((source, "safetensors", "bin"), (source / "2_Dense", "bin", "")):
        (*_, weights) = folder.glob(f"*.{old}")
        weights.unlink()
        if new:
            write_state_dict(folder / "pytorch_model.bin", TENSORS)
        else:
            save_file(TENSORS, folder / "model.safetensors")
    convert_directory(source, target)
    assert files(target) == EXPECTED
    assert load_file(target / "2_Dense" / "model.safetensors").keys() == TENSORS.keys()


def test_a_folder_that_no_module_names_is_not_copied(source: Path, target: Path) -> None:
    write_json(source / "checkpoint-100" / "config.json")
    convert_directory(source, target)
    assert files(target) == EXPECTED


def test_a_folder_may_be_named_twice_and_lie_in_another_one(source: Path, target: Path) -> None:
    (source / "heads").mkdir()
    (source / "2_Dense").rename(source / "heads" / "dense")
    dense = ("Dense", "./heads/dense")
    write_modules(source, ("Pooling", "1_Pooling"), dense, dense, ("Normalize", "."))
    convert_directory(source, target)
    assert files(target) == {each.replace("2_Dense", "heads/dense") for each in EXPECTED}


@pytest.mark.parametrize("folder", ["..", "../other", "2_Dense/../../other", "/etc", "//etc"])
def test_a_folder_outside_the_directory_is_refused(source: Path, target: Path, folder: str) -> None:
    write_json(source.parent / "other" / "config.json")
    write_modules(source, ("Pooling", "1_Pooling"), ("Dense", "2_Dense"), ("Normalize", folder))
    with pytest.raises(StartupError, match=r"modules\.json: module .* is outside the directory"):
        convert_directory(source, target)
    assert not target.exists()


def test_a_folder_that_is_a_link_elsewhere_is_refused(source: Path, target: Path) -> None:
    write_json(source.parent / "other" / "config.json")
    (source / "3_N").symlink_to(source.parent / "other")
    with pytest.raises(StartupError, match="3_N: points outside the model's directory"):
        convert_directory(source, target)
    assert not target.exists()


@pytest.mark.parametrize("folder", ["\0", "\ud800", "config.json"])
def test_a_name_that_no_folder_has_is_left_out(source: Path, target: Path, folder: str) -> None:
    write_modules(source, ("Pooling", "1_Pooling"), ("Dense", "2_Dense"), ("Normalize", folder))
    convert_directory(source, target)
    assert files(target) == EXPECTED


@pytest.mark.parametrize("folder", ["x" * 300, "a/" * 3000], ids=["name", "path"])
def test_a_folder_whose_name_is_too_long_is_refused(
    source: Path, target: Path, folder: str
) -> None:
    write_modules(source, ("Pooling", "1_Pooling"), ("Dense", "2_Dense"), ("Normalize", folder))
    with pytest.raises(StartupError, match=r"modules\.json: path .*: File name too long"):
        convert_directory(source, target)
    assert not target.exists()


@pytest.mark.parametrize("folder", ["1_Pooling", "2_Dense"])
def test_a_module_without_its_settings_is_refused(source: Path, target: Path, folder: str) -> None:
    (source / folder / "config.json").unlink()
    with pytest.raises(StartupError, match=f"in folder '{folder}' must have a config.json"):
        convert_directory(source, target)
    assert not target.exists()


def test_modules_of_an_encoder_without_weights_are_refused(source: Path, target: Path) -> None:
    (source / "model.safetensors").unlink()
    with pytest.raises(StartupError, match=r"has neither model\.safetensors nor"):
        convert_directory(source, target)
    assert not target.exists()


def test_a_model_with_nothing_to_convert_is_refused(source: Path, target: Path) -> None:
    (source / "2_Dense" / "pytorch_model.bin").unlink()
    with pytest.raises(StartupError, match="has no weights to convert"):
        convert_directory(source, target)
