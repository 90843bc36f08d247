"""Memory for weights is prefetched if models fit and their files are usable."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from shaperouter_service.checkpoints import prefetch
from shaperouter_service.checkpoints.number_types import DType
from shaperouter_service.checkpoints.prefetch import prefetch_weights

NUMBERS = 64 * 64 + 64


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    weights = {"a": np.zeros((64, 64), np.float16), "b": np.zeros(64, np.float16)}
    save_file(weights, tmp_path / "model.safetensors")
    return tmp_path


@pytest.mark.parametrize(
    ("dtype", "size"),
    [
        ("float32", NUMBERS * 4),
        ("bfloat16", NUMBERS * 2),
        ("int8", NUMBERS),
        ("int4", NUMBERS * 9 // 16),
    ],
)
def test_a_model_gets_memory_for_its_numbers_in_their_new_type(
    directory: Path, monkeypatch: pytest.MonkeyPatch, dtype: DType, size: int
) -> None:
    expected: list[int] = []
    monkeypatch.setattr(prefetch, "PopulatedMemory", expected.append)
    monkeypatch.setattr(prefetch, "_populate", lambda memories: None)
    assert list(prefetch_weights({"m": directory}, dtype)) == ["m"]
    assert expected == [size]


def test_functions_have_no_weights_to_prefetch(directory: Path) -> None:
    (directory / "saved_model.pb").touch()
    assert prefetch_weights({"m": directory}, "float32") == {}


def test_models_with_unusable_files_are_left_for_loading_to_report(
    directory: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "model.safetensors").write_bytes(b"no header")
    directories = {"nowhere": tmp_path / "nowhere", "broken": broken, "m": directory}
    assert list(prefetch_weights(directories, "float32")) == ["m"]


def test_models_that_would_fill_the_memory_are_left_out(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefetch, "available_memory", lambda: 3 * NUMBERS * 4)
    directories = {"one": directory, "another": directory}
    assert list(prefetch_weights(directories, "float32")) == ["one"]
