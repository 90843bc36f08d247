"""A model's directory is checked before anything reads it."""

import json
import os
from pathlib import Path

import pytest

from shaperouter_service.checkpoints import model_files
from shaperouter_service.checkpoints.model_files import (
    check_model_directory,
    is_decoder,
    may_transcribe,
    weight_files,
)
from shaperouter_service.checkpoints.model_locations import parse_models
from shaperouter_service.errors import StartupError
from shaperouter_service.text import load_tokenizer


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    directory = tmp_path / "model"
    directory.mkdir()
    (directory / "config.json").write_text("{}")
    return directory


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "secret"
    file.write_text("secret-content")
    return file


def test_files_and_links_inside_are_accepted(directory: Path) -> None:
    (directory / "link.json").symlink_to("config.json")
    (directory / "sub").mkdir()
    (directory / "sub" / "link").symlink_to(directory / "config.json")
    check_model_directory(directory)


@pytest.mark.parametrize("name", ["config2.json", "model.safetensors", "sub/vocab.txt"])
def test_a_link_to_a_file_outside_is_refused(directory: Path, secret: Path, name: str) -> None:
    (directory / "sub").mkdir()
    (directory / name).symlink_to(secret)
    with pytest.raises(StartupError, match=f"{name}: points outside the model's directory, to "):
        check_model_directory(directory)


def test_a_link_to_a_directory_outside_is_refused(directory: Path) -> None:
    (directory / "additional_chat_templates").symlink_to("/etc")
    with pytest.raises(StartupError, match="points outside the model's directory, to /etc"):
        check_model_directory(directory)


def test_links_into_the_hubs_cache_are_accepted(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "hub" / "blobs", tmp_path / "hub" / "snapshots" / "abc"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    (blobs / "123").touch()
    (snapshot / "config.json").symlink_to("../../blobs/123")
    check_model_directory(snapshot)


def test_a_link_to_another_model_below_snapshots_is_refused(tmp_path: Path) -> None:
    directory, other = (tmp_path / "snapshots" / name for name in ("model", "other"))
    for each in (directory, other):
        each.mkdir(parents=True)
        (each / "config.json").touch()
    (directory / "vocab.json").symlink_to("../other/config.json")
    with pytest.raises(StartupError, match="points outside the model's directory"):
        check_model_directory(directory)


def test_a_pipe_is_refused(directory: Path) -> None:
    os.mkfifo(directory / "tokenizer.json")
    with pytest.raises(StartupError, match=r"tokenizer\.json: is neither a file nor a directory"):
        check_model_directory(directory)


@pytest.mark.parametrize("name", ["generation_config.json", "model.safetensors", "vocab.txt"])
def test_a_broken_link_in_place_of_a_file_to_read_is_refused(directory: Path, name: str) -> None:
    (directory / name).symlink_to("nothing")
    with pytest.raises(StartupError, match=f"{name}: cannot be read: No such file or directory"):
        check_model_directory(directory)


def test_a_broken_link_that_nothing_reads_is_fine(directory: Path) -> None:
    (directory / "pytorch_model.bin").symlink_to("nothing")
    check_model_directory(directory)


def test_links_in_a_loop_are_refused(directory: Path) -> None:
    (directory / "vocab.json").symlink_to("tokenizer.json")
    (directory / "tokenizer.json").symlink_to("vocab.json")
    with pytest.raises(StartupError, match=r"\.json: cannot be read: Too many levels of symbolic"):
        check_model_directory(directory)


@pytest.mark.parametrize("name", ["tokenizer.json", "model.safetensors"])
def test_a_directory_in_place_of_a_file_to_read_is_refused(directory: Path, name: str) -> None:
    (directory / name).mkdir()
    with pytest.raises(StartupError, match=f"{name}: must be a file, is a directory"):
        check_model_directory(directory)


@pytest.mark.parametrize(
    ("shard", "shown"), [("", "''"), ("..", "'..'"), ("x" * 300, "'xxx"), ("\ud800", r"'\\ud800'")]
)
def test_an_index_that_names_no_file_is_refused(directory: Path, shard: str, shown: str) -> None:
    (directory / "index.json").write_text(json.dumps({"weight_map": {"tensor": shard}}))
    with pytest.raises(StartupError, match=f"index.json: shard {shown}.* is missing"):
        weight_files(directory, "whole", "index.json")


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("config.json", model_files.MAX_CONFIG_BYTES),
        ("tokenizer_config.json", model_files.MAX_TEXT_BYTES),
        ("tokenizer.json", model_files.MAX_TEXT_BYTES),
        ("spiece.model", model_files.MAX_TEXT_BYTES),
        ("source.spm", model_files.MAX_TEXT_BYTES),
        ("bpe.codes", model_files.MAX_TEXT_BYTES),
    ],
)
def test_a_file_that_is_read_whole_has_a_maximum_size(
    directory: Path, name: str, limit: int
) -> None:
    with (directory / name).open("wb") as file:
        file.truncate(limit)
    check_model_directory(directory)
    with (directory / name).open("wb") as file:
        file.truncate(limit + 1)
    with pytest.raises(StartupError, match=f"must have at most {limit} bytes, got {limit + 1}"):
        check_model_directory(directory)


@pytest.mark.parametrize("model_type", [["whisper"], {"name": "llama"}], ids=str)
def test_a_family_that_is_no_name_neither_transcribes_nor_decodes(
    directory: Path, model_type: object
) -> None:
    (directory / "config.json").write_text(json.dumps({"model_type": model_type}))
    assert not may_transcribe(directory)
    assert not is_decoder(directory)


def test_every_configured_model_is_checked(directory: Path, secret: Path) -> None:
    (directory / "vocab.json").symlink_to(secret)
    with pytest.raises(StartupError, match="points outside") as error:
        parse_models([f"m={directory}"])
    assert "secret-content" not in str(error.value)


@pytest.mark.parametrize("local", [True, False], ids=["code within", "code of a hub"])
def test_code_of_a_tokenizer_is_not_run(directory: Path, checkpoint: Path, local: bool) -> None:
    for file in checkpoint.iterdir():
        (directory / file.name).write_bytes(file.read_bytes())
    ran = directory / "ran"
    code = f"open({str(ran)!r}, 'w')\nclass Evil:\n    pass\n"
    (directory / "evil.py").write_text(code)
    place = "evil.Evil" if local else "someone/evil--evil.Evil"
    config = json.loads((directory / "tokenizer_config.json").read_text())
    config |= {"tokenizer_class": "Evil", "auto_map": {"AutoTokenizer": [place, None]}}
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(StartupError, match="cannot load the tokenizer") as error:
        load_tokenizer(directory)
    assert "trust_remote_code" in str(error.value)
    assert not ran.exists()


def test_a_tokenizers_configuration_cannot_name_other_files(
    directory: Path, checkpoint: Path, secret: Path
) -> None:
    for file in checkpoint.iterdir():
        (directory / file.name).write_bytes(file.read_bytes())
    config = json.loads((directory / "tokenizer_config.json").read_text())
    files = ("tokenizer_file", "vocab_file", "merges_file", "special_tokens_map_file")
    config |= dict.fromkeys(files, str(secret))
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = load_tokenizer(directory)
    assert tokenizer is not None
    assert "secret" not in json.dumps(tokenizer._tokenizer.get_vocab())
