"""Where models are in the repository, and what their digests depend on."""

import os
from pathlib import Path

import pytest

from shaperouter_service.checkpoints.digest import model_digest
from shaperouter_service.checkpoints.repository import locate_below, locations_in
from shaperouter_service.errors import StartupError


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A checkpoint, a SavedModel in Triton's layout, and a directory without a model."""
    for name in ("text-1", "deep/er", "image/1/model.savedmodel", "empty"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("text-1", "deep/er"):
        (tmp_path / name / "config.json").write_text("{}")
    (tmp_path / "image/1/model.savedmodel/saved_model.pb").write_bytes(b"graph")
    (tmp_path / "sums.keras").write_bytes(b"keras")
    return tmp_path


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("text-1", "text-1"),
        ("deep/er", "deep/er"),
        ("image", "image/1/model.savedmodel"),
        ("sums.keras", "sums.keras"),
    ],
)
def test_a_location_is_a_path_below_the_repository(
    repository: Path, location: str, path: str
) -> None:
    assert locate_below(repository, location) == repository / path


@pytest.mark.parametrize(
    "location", ["", ".", "..", "../x", "/etc", "deep/../text-1", "deep//er", "a\0b", 300 * "a"]
)
def test_a_location_leads_nowhere_else(repository: Path, location: str) -> None:
    with pytest.raises(StartupError, match="must be a path below the model repository"):
        locate_below(repository, location)


@pytest.mark.parametrize(
    ("location", "fault"),
    [("missing", "not in the model repository"), ("empty", "neither a checkpoint nor a function")],
)
def test_a_location_without_a_model_is_refused(repository: Path, location: str, fault: str) -> None:
    with pytest.raises(StartupError, match=fault):
        locate_below(repository, location)


def test_a_link_out_of_a_model_is_refused(repository: Path) -> None:
    (repository / "text-1" / "vocab.json").symlink_to("/etc/hostname")
    with pytest.raises(StartupError, match="points outside the model's directory"):
        locate_below(repository, "text-1")


def test_the_index_has_what_may_be_a_model(repository: Path) -> None:
    (repository / "README.md").touch()
    (repository / ".hidden").mkdir()
    assert locations_in(repository) == ["deep", "empty", "image", "sums.keras", "text-1"]


def test_a_digest_depends_on_what_a_checkpoint_is_loaded_from(repository: Path) -> None:
    text = repository / "text-1"
    (text / "model.safetensors").write_bytes(b"weights")
    before = model_digest(text)
    assert len(before) == 64
    (text / "README.md").write_text("about")
    (text / "pytorch_model.bin").write_bytes(b"other weights")
    assert model_digest(text) == before
    (text / "model.safetensors").write_bytes(b"Weights")
    assert model_digest(text) != before


def test_a_digest_depends_on_names_and_not_on_the_directory(repository: Path) -> None:
    assert model_digest(repository / "text-1") == model_digest(repository / "deep/er")
    (repository / "deep/er/config.json").rename(repository / "deep/er/other.json")
    assert model_digest(repository / "text-1") != model_digest(repository / "deep/er")


def test_a_digest_takes_any_file_name(repository: Path) -> None:
    text = repository / "text-1"
    before = model_digest(text)
    Path(os.fsdecode(os.fsencode(text) + b"/\xff.json")).write_text("{}")
    assert model_digest(text) != before


def test_a_function_is_its_whole_directory(repository: Path) -> None:
    function = repository / "image/1/model.savedmodel"
    before = model_digest(function)
    (function / "variables").mkdir()
    (function / "variables" / "variables.data").write_bytes(b"weights")
    assert model_digest(function) != before
