"""BART and its relatives: what their checkpoints may say; goldens compare answers."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file

from harness.engine import GOLDENS, Golden, last_logits
from shaperouter_service.checkpoints.safetensors_reader import Checkpoint
from shaperouter_service.errors import StartupError
from shaperouter_service.models import load_model
from shaperouter_service.models.loading import Model, read_family, unused_tensors
from shaperouter_service.models.seq2seq import EMBEDDINGS, HEADS, POSITIONS, SOURCE_EMBEDDINGS


def edited(name: str, directory: Path, **values: object) -> Path:
    """A copy of a golden checkpoint with other values in its config.json; None removes one."""
    copy = Path(shutil.copytree(GOLDENS / name, directory / name))
    path = copy / "config.json"
    config = json.loads(path.read_text()) | values
    path.write_text(json.dumps({key: each for key, each in config.items() if each is not None}))
    return copy


def with_tensors(directory: Path, tensors: dict[str, Any]) -> Path:
    """Adds tensors to a checkpoint of one file."""
    path = directory / "model.safetensors"
    save_file(load_file(path) | tensors, path)
    return directory


def logits_of(model: Model, case: dict[str, Any]) -> np.ndarray:
    """The logits of the first new token for a case."""
    start = tf.constant([[model.decoder_start_token_id]])
    found: np.ndarray = last_logits(model, start, case["prompt_token_ids"]).numpy()
    return found


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("bart", {"encoder_attention_heads": 5}, "multiple of encoder_attention_heads, got 36 an"),
        ("bart", {"decoder_attention_heads": 8}, "multiple of decoder_attention_heads, got 36 an"),
        ("bart", {"activation_function": "mish"}, "activation_function must be one of .*'mish'"),
        ("bart", {"architectures": ["BartForSequenceClassification"]}, "another head cannot gen"),
        ("marian", {"max_position_embeddings": 10**9}, "must be from 1 to 65536, got 1000000000"),
        (
            "marian",
            {"share_encoder_decoder_embeddings": False},
            "share_encoder_decoder_embeddings must be true, got False",
        ),
        (
            "marian",
            {"decoder_vocab_size": 90},
            "must be vocab_size, 101, got 90",
        ),
        ("m2m100", {"pad_token_id": 107}, "pad_token_id must be from 0 to 106, got 107"),
    ],
)
def test_what_is_not_supported_is_refused_by_name_and_value(
    name: str, values: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(StartupError, match=message):
        read_family(Checkpoint(edited(name, tmp_path, **values), only_headers=True))


def test_tied_embeddings_are_read_once(tmp_path: Path) -> None:
    embeddings = load_file(GOLDENS / "bart" / "model.safetensors")["model.shared.weight"]
    copies = (f"model.{EMBEDDINGS}", f"model.{SOURCE_EMBEDDINGS}", HEADS[0])
    directory = with_tensors(edited("bart", tmp_path), dict.fromkeys(copies, embeddings))
    checkpoint = Checkpoint(directory)
    names = [name for name, _ in read_family(checkpoint).read_weights(checkpoint, np.dtype("f4"))]
    assert EMBEDDINGS in names
    assert not {SOURCE_EMBEDDINGS, *HEADS} & {*names}
    assert not unused_tensors(checkpoint, read_family(checkpoint))


def test_embeddings_that_are_not_tied_differ_by_use() -> None:
    weights = load_model("m", GOLDENS / "mbart", "float32").weights
    assert {SOURCE_EMBEDDINGS, EMBEDDINGS, HEADS[0]} <= {*weights}


def test_positions_of_a_checkpoint_take_the_place_of_sinusoids(tmp_path: Path) -> None:
    case = Golden.read("marian").cases[0]
    computed = load_model("m", GOLDENS / "marian", "float32")
    directory = edited("marian", tmp_path)
    same = {f"model.{name}": computed.weights[name].numpy() for name in POSITIONS}
    stored = load_model("m", with_tensors(directory, same), "float32")
    np.testing.assert_array_equal(logits_of(stored, case), logits_of(computed, case))
    other = {name: table[::-1].copy() for name, table in same.items()}
    changed = load_model("m", with_tensors(directory, other), "float32")
    assert not np.allclose(logits_of(changed, case), logits_of(computed, case))


def test_padding_tokens_of_m2m100_have_no_position(tmp_path: Path) -> None:
    # Another padding token changes all positions.
    case = Golden.read("m2m100").cases[0]
    own = load_model("m", GOLDENS / "m2m100", "float32")
    other = load_model("m", edited("m2m100", tmp_path, pad_token_id=9), "float32")
    assert not np.allclose(logits_of(own, case), logits_of(other, case))
    assert not own.weights[POSITIONS[0]].numpy()[4].any()


@pytest.mark.parametrize(
    ("name", "eos", "forced"),
    [("bart", 2, 2), ("mbart", 2, 2), ("marian", 0, 0), ("pegasus", 1, 1), ("m2m100", 2, -1)],
)
def test_end_tokens_default_as_in_transformers(
    name: str, eos: int, forced: int, tmp_path: Path
) -> None:
    unset = dict.fromkeys(("eos_token_id", "forced_eos_token_id"))
    directory = edited(name, tmp_path, **unset)
    (directory / "generation_config.json").unlink()
    options = load_model("m", directory, "float32").default_options
    assert (options["eos_token_ids"], options["forced_eos_token_id"]) == ((eos,), forced)
