"""Locations of models: built in, a directory, or a hub."""

from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub.errors import HFValidationError, HTTPError, LocalEntryNotFoundError

from shaperouter_service.checkpoints import model_locations
from shaperouter_service.checkpoints.model_locations import (
    ModelLocation,
    parse_drafts,
    parse_models,
)
from shaperouter_service.errors import StartupError


@pytest.fixture
def builtin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with two built-in models, `demo` and `tiny`."""
    root = tmp_path / "package" / "builtin"
    for name in ("tiny", "demo"):
        (root / name).mkdir(parents=True)
    (root / "README.md").touch()
    monkeypatch.setattr(model_locations, "files", lambda _: root.parent)
    return root


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


def test_a_name_alone_is_a_built_in_model(builtin: Path) -> None:
    assert parse_models(["demo"]) == [ModelLocation(name="demo", directory=builtin / "demo")]


def test_an_unknown_built_in_name_is_refused_with_the_known_ones(builtin: Path) -> None:
    with pytest.raises(StartupError, match=r"'gpt2' is not a built-in model \(demo, tiny\)"):
        parse_models(["gpt2"])


def test_the_refusal_says_how_to_name_a_checkpoint(builtin: Path) -> None:
    with pytest.raises(StartupError, match="gpt2=DIRECTORY or gpt2=HUB_ID"):
        parse_models(["gpt2"])


def test_a_name_may_stand_for_a_directory(tmp_path: Path) -> None:
    assert parse_models([f"mine={tmp_path}"]) == [ModelLocation(name="mine", directory=tmp_path)]


def test_a_relative_directory_becomes_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "checkpoint").mkdir()
    (source,) = parse_models(["mine=checkpoint"])
    assert source.directory == tmp_path / "checkpoint"


def test_a_tilde_is_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "checkpoint").mkdir()
    (source,) = parse_models(["mine=~/checkpoint"])
    assert source.directory == tmp_path / "checkpoint"


def test_a_directory_may_have_an_equals_sign_in_its_name(tmp_path: Path) -> None:
    directory = tmp_path / "a=b"
    directory.mkdir()
    assert parse_models([f"mine={directory}"])[0].directory == directory


def test_models_keep_their_order(builtin: Path, tmp_path: Path) -> None:
    names = [source.name for source in parse_models(["tiny", f"a={tmp_path}", "demo"])]
    assert names == ["tiny", "a", "demo"]


@pytest.mark.parametrize("name", ["", "-x", ".x", "a b", "a/b", "é", "x" * 65, "a\n"])
@pytest.mark.parametrize("place", ["", "=/tmp"])
def test_a_bad_name_is_refused(name: str, place: str) -> None:
    with pytest.raises(StartupError, match="at most 64 letters") as error:
        parse_models([name + place])
    assert repr(name) in str(error.value)


def test_a_name_of_the_maximum_length_is_accepted(tmp_path: Path) -> None:
    name = "A1._-" + "x" * 59
    assert parse_models([f"{name}={tmp_path}"])[0].name == name


def test_a_repeated_name_is_refused(builtin: Path, tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="demo is given twice"):
        parse_models(["demo", f"demo={tmp_path}"])


@pytest.mark.parametrize(
    "place",
    ["/nowhere/at/all", "./nowhere", "../nowhere", "a/b/c", "nowhere/", "~/nowhere", "a/b@", ""],
)
def test_a_missing_path_is_refused(place: str) -> None:
    with pytest.raises(StartupError, match="is not a directory") as error:
        parse_models([f"mine={place}"])
    assert repr(place) in str(error.value)


def test_a_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.touch()
    with pytest.raises(StartupError, match="is not a directory"):
        parse_models([f"mine={file}"])


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("name", ("name", None)),
        ("owner/name", ("owner/name", None)),
        ("owner/name@v1.0", ("owner/name", "v1.0")),
        ("owner/name@refs/pr/7", ("owner/name", "refs/pr/7")),
    ],
)
def test_a_hub_id_is_downloaded_without_code(
    location: str,
    expected: tuple[str, str | None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []

    def download(
        hub_id: str,
        *,
        revision: str | None,
        allow_patterns: list[str],
        ignore_patterns: list[str],
    ) -> str:
        asked.append((hub_id, revision))
        # Newer checkpoints keep their chat template in a file of its own.
        assert {"*.safetensors", "*.jinja"} <= set(allow_patterns)
        # Marian's tokenizer and PhoBERT's.
        assert {"*.spm", "*.codes"} <= set(allow_patterns)
        assert not any(pattern.endswith((".py", ".bin", "*")) for pattern in allow_patterns)
        assert any(fnmatch("consolidated.safetensors", pattern) for pattern in ignore_patterns)
        assert not any(fnmatch("model.safetensors", pattern) for pattern in ignore_patterns)
        return str(tmp_path)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    assert parse_models([f"mine={location}"])[0].directory == tmp_path
    assert asked == [expected]


def test_a_hub_id_without_network_is_a_startup_error(offline: None) -> None:
    with pytest.raises(StartupError, match="'nobody/nothing' is not a directory"):
        parse_models(["mine=nobody/nothing"])


def test_an_invalid_hub_id_is_a_startup_error(offline: None) -> None:
    with pytest.raises(StartupError, match="'a--b' is not a directory"):
        parse_models(["mine=a--b"])


@pytest.mark.parametrize(
    "raised",
    [
        LocalEntryNotFoundError("offline"),
        HFValidationError("no id"),
        PermissionError("the cache cannot be written"),
        HTTPError("the proxy refuses"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_download_that_fails_is_a_startup_error(
    monkeypatch: pytest.MonkeyPatch, raised: Exception
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise raised

    monkeypatch.setattr("huggingface_hub.snapshot_download", fail)
    with pytest.raises(StartupError, match=str(raised)):
        parse_models(["mine=owner/name"])


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["saved_model.pb"], "."),
        (["classifier.keras"], "classifier.keras"),
        (["1/saved_model.pb", "2/saved_model.pb", "10/saved_model.pb"], "10"),
        (["0003/model.savedmodel/saved_model.pb", "config.pbtxt"], "0003/model.savedmodel"),
        (["1/classifier.keras", "2/notes.txt"], "1/classifier.keras"),
        (["config.json", "1/saved_model.pb"], "."),
        (["one/saved_model.pb"], "."),
    ],
    ids=["SavedModel", "Keras", "versions", "Triton", "Keras version", "checkpoint", "no version"],
)
def test_a_function_is_found_in_the_layouts_of_other_servers(
    tmp_path: Path, files: list[str], expected: str
) -> None:
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    (source,) = parse_models([f"mine={tmp_path}"])
    assert source.directory == tmp_path / expected


def test_one_of_several_keras_files_must_be_named(tmp_path: Path) -> None:
    for name in ("b.keras", "a.keras"):
        (tmp_path / name).touch()
    with pytest.raises(StartupError, match=r"several \.keras files, name one of them: a\.keras, b"):
        parse_models([f"mine={tmp_path}"])


def test_a_draft_model_is_given_by_the_name_of_its_model(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    assert parse_drafts([f"big={tmp_path}"], ["big", "other"]) == {"big": tmp_path}


@pytest.mark.parametrize(
    ("drafts", "message"),
    [
        (["big"], "draft: must be NAME=DIRECTORY or NAME=HUB_ID, got 'big'"),
        (["huge={0}"], "draft: unknown model 'huge'; served models: big"),
        (["big={0}", "big={0}"], "draft: model big must have one draft model, got two"),
        (["big=./nowhere"], "draft: './nowhere' is not a directory"),
        (["big={0}/empty"], "empty' is not a checkpoint: it has no config.json"),
    ],
)
def test_an_unusable_draft_model_is_refused(
    tmp_path: Path, drafts: list[str], message: str
) -> None:
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    (tmp_path / "empty").mkdir()
    with pytest.raises(StartupError, match=message):
        parse_drafts([draft.format(tmp_path) for draft in drafts], ["big"])
