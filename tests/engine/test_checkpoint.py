"""A damaged or unknown model directory is refused with a message that names the problem."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from ml_dtypes import bfloat16
from safetensors.numpy import load_file, save_file

from harness.engine import GOLDENS
from harness.logs import capture_logs
from shaperouter_service.checkpoints.safetensors_reader import Checkpoint
from shaperouter_service.errors import StartupError
from shaperouter_service.models import load_model
from shaperouter_service.models.loading import read_family


@pytest.fixture
def tied(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDENS / "gpt2-odd-heads", tmp_path / "tied"))


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDENS / "gpt2-untied", tmp_path / "sharded"))


def _edit_config(directory: Path, name: str = "config.json", **values: object) -> None:
    path = directory / name
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def _edit_weights(directory: Path, edit: Callable[[dict[str, np.ndarray]], None]) -> None:
    path = directory / "model.safetensors"
    weights = load_file(path)
    edit(weights)
    save_file(weights, path)


def test_a_missing_directory(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="nowhere: is not a directory"):
        load_model("m", tmp_path / "nowhere", "float32")


def test_a_missing_config(tied: Path) -> None:
    (tied / "config.json").unlink()
    with pytest.raises(StartupError, match=r"config\.json: cannot be read: No such file"):
        load_model("m", tied, "float32")


def test_a_config_that_is_not_json(tied: Path) -> None:
    (tied / "config.json").write_text("{")
    with pytest.raises(StartupError, match=r"config\.json: is not valid JSON"):
        load_model("m", tied, "float32")


def test_missing_weights(tied: Path) -> None:
    (tied / "model.safetensors").unlink()
    with pytest.raises(StartupError, match=r"has neither model\.safetensors nor"):
        load_model("m", tied, "float32")


def test_truncated_weights(tied: Path) -> None:
    path = tied / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(StartupError, match=r"model\.safetensors: cannot be read"):
        load_model("m", tied, "float32")


def test_a_missing_shard(sharded: Path) -> None:
    shard = sorted(sharded.glob("model-*.safetensors"))[0]
    shard.unlink()
    with pytest.raises(StartupError, match=f"shard '{shard.name}' is missing"):
        load_model("m", sharded, "float32")


def test_a_shard_outside_the_directory(sharded: Path) -> None:
    index = sharded / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    content["weight_map"]["wte.weight"] = "../../secret.safetensors"
    index.write_text(json.dumps(content))
    with pytest.raises(StartupError, match="outside the directory"):
        load_model("m", sharded, "float32")


def test_a_missing_tensor(tied: Path) -> None:
    _edit_weights(tied, lambda weights: weights.pop("transformer.ln_f.bias"))
    with pytest.raises(StartupError, match=r"tensor transformer\.ln_f\.bias is missing"):
        load_model("m", tied, "float32")


@pytest.mark.parametrize("stored", [np.float32, np.float16, np.float64, bfloat16])
def test_a_head_that_equals_the_tied_embeddings_is_a_copy(tied: Path, stored: type) -> None:
    def copy(weights: dict[str, np.ndarray]) -> None:
        embeddings = weights["transformer.wte.weight"].astype(bfloat16)
        weights["transformer.wte.weight"] = embeddings.astype(np.float16).astype(bfloat16)
        weights["lm_head.weight"] = weights["transformer.wte.weight"].astype(stored)

    _edit_weights(tied, copy)
    assert "lm_head.weight" not in load_model("m", tied, "float32").weights


@pytest.mark.parametrize(
    ("name", "embeddings", "head"),
    [
        ("gpt2-odd-heads", "transformer.wte.weight", "lm_head.weight"),
        ("opt-post", "decoder.embed_tokens.weight", "lm_head.weight"),
        ("gemma3", "model.embed_tokens.weight", "lm_head.weight"),
        ("bart", "model.shared.weight", "lm_head.weight"),
        ("bart", "model.shared.weight", "model.encoder.embed_tokens.weight"),
        ("whisper-uneven", "model.decoder.embed_tokens.weight", "proj_out.weight"),
    ],
)
def test_a_head_that_differs_from_the_tied_embeddings_is_refused(
    tmp_path: Path, name: str, embeddings: str, head: str
) -> None:
    directory = Path(shutil.copytree(GOLDENS / name, tmp_path / name))

    def add_head(weights: dict[str, np.ndarray]) -> None:
        weights[head] = weights[embeddings].copy()
        weights[head][-1, -1] += 1

    _edit_weights(directory, add_head)
    with pytest.raises(StartupError, match=f"tie_word_embeddings must be false for .*{head}"):
        read_family(Checkpoint(directory, only_headers=True))


def test_a_head_of_another_shape_than_the_tied_embeddings_is_refused(tied: Path) -> None:
    _edit_weights(tied, lambda weights: weights.update({"lm_head.weight": np.zeros([3, 48], "f4")}))
    with pytest.raises(StartupError, match="tie_word_embeddings must be false for lm_head"):
        read_family(Checkpoint(tied, only_headers=True))


def test_tensors_are_compared_to_their_last_piece(
    tied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def add_head(weights: dict[str, np.ndarray]) -> None:
        weights["lm_head.weight"] = weights["transformer.wte.weight"].copy()
        weights["lm_head.weight"][-1, -1] += 1

    _edit_weights(tied, add_head)
    monkeypatch.setattr("shaperouter_service.checkpoints.safetensors_reader.PIECE_NUMBERS", 1000)
    checkpoint = Checkpoint(tied, only_headers=True)
    assert not checkpoint.are_equal("lm_head.weight", "transformer.wte.weight")
    assert checkpoint.are_equal("lm_head.weight", "lm_head.weight")


def test_a_tensor_of_another_shape(tied: Path) -> None:
    def transpose(weights: dict[str, np.ndarray]) -> None:
        name = "transformer.h.0.mlp.c_fc.weight"
        weights[name] = np.ascontiguousarray(weights[name].T)

    _edit_weights(tied, transpose)
    with pytest.raises(
        StartupError,
        match=r"c_fc\.weight has shape \[192, 48\], but config\.json implies \[48, 192\]",
    ):
        load_model("m", tied, "float32")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model_type": "bloom"}, "model_type must be one of gpt2, opt, .*, got 'bloom'"),
        ({"model_type": ["gpt2"]}, "model_type must be one of gpt2, opt, .*, got .*gpt2"),
        ({"layer_norm_epsilon": 10**400}, "layer_norm_epsilon must be between .*, got 1000"),
        ({"n_inner": -(2**63)}, "n_inner must be between .*, got -9223372036854775808"),
        ({"n_embd": 50}, "n_embd must be a multiple of n_head, got 50 and 3"),
        ({"n_head": 0}, "n_head must be positive, got 0"),
        ({"layer_norm_epsilon": math.inf}, "layer_norm_epsilon must be finite, got inf"),
        ({"n_layer": "two"}, "n_layer must be of type int, got 'two'"),
        ({"activation_function": "maxout"}, "activation_function must be one of .* got 'maxout'"),
        ({"add_cross_attention": True}, "add_cross_attention is not supported"),
    ],
)
def test_a_config_that_cannot_be_served(
    tied: Path, values: dict[str, object], message: str
) -> None:
    _edit_config(tied, **values)
    with pytest.raises(StartupError, match=message):
        load_model("m", tied, "float32")


def test_end_tokens_and_sampling_come_from_the_generation_config(tied: Path) -> None:
    _edit_config(
        tied, "generation_config.json", eos_token_id=[3, 5], do_sample=True, temperature=0.7
    )
    model = load_model("m", tied, "float32")
    assert model.default_options["eos_token_ids"] == (3, 5)
    assert model.default_options["do_sample"]
    assert model.default_options["temperature"] == 0.7


def test_without_a_generation_config_the_end_token_comes_from_the_config(tied: Path) -> None:
    (tied / "generation_config.json").unlink()
    _edit_config(tied, eos_token_id=7)
    assert load_model("m", tied, "float32").default_options["eos_token_ids"] == (7,)


def test_a_generation_config_without_end_tokens_means_none() -> None:
    model = load_model("m", GOLDENS / "gpt2-untied", "float32")
    assert model.default_options["eos_token_ids"] == ()


def test_too_many_end_tokens(tied: Path) -> None:
    _edit_config(tied, "generation_config.json", eos_token_id=list(range(9)))
    with pytest.raises(StartupError, match="eos_token_id must have at most 8 ids, got 9"):
        load_model("m", tied, "float32")


def test_a_classifier_is_refused(tied: Path) -> None:
    _edit_config(tied, architectures=["GPT2ForSequenceClassification"])
    with pytest.raises(
        StartupError, match=r"architectures must name one of GPT2LMHeadModel, .* got \['GPT2ForSeq"
    ):
        load_model("m", tied, "float32")


def test_a_config_without_architectures_is_identified_by_its_model_type(tied: Path) -> None:
    _edit_config(tied, architectures=None)
    assert load_model("m", tied, "float32").family.name == "gpt2"


def test_tensors_that_no_forward_pass_reads_are_reported(tied: Path) -> None:
    _edit_weights(tied, lambda weights: weights.update({"score.weight": np.ones([2, 32], "f4")}))
    with capture_logs() as logs:
        load_model("m", tied, "float32")
    (warning,) = logs
    assert warning["log_level"] == "warning"
    assert (warning["count"], warning["tensors"]) == (1, ["score.weight"])


@pytest.mark.parametrize("name", ["gpt2-bare", "opt-post", "t5-tied", "mt5", "whisper-uneven"])
def test_every_tensor_of_a_checkpoint_is_used(name: str) -> None:
    with capture_logs() as logs:
        load_model("m", GOLDENS / name, "float32")
    assert logs == []


def test_integer_weights(tied: Path) -> None:
    def quantize(weights: dict[str, np.ndarray]) -> None:
        weights["transformer.wte.weight"] = weights["transformer.wte.weight"].astype(np.int8)

    _edit_weights(tied, quantize)
    with pytest.raises(StartupError, match=r"wte\.weight must be one of F64, .* got I8"):
        load_model("m", tied, "float32")


def test_a_bad_generation_config_is_refused_by_name(tied: Path) -> None:
    _edit_config(tied, "generation_config.json", do_sample=True, temperature=-1.0)
    with pytest.raises(StartupError, match=r"generation_config\.json: temperature must be from"):
        load_model("m", tied, "float32")


def test_progress_counts_every_byte_read() -> None:
    read: list[int] = []
    checkpoint = Checkpoint(GOLDENS / "gpt2-bare", on_read=read.append)
    checkpoint.read("wpe.weight", shape=(128, 32), dtype=np.dtype(np.float32))
    assert sum(read) == 128 * 32 * np.dtype(np.float16).itemsize
    assert sum(read) < checkpoint.file_bytes


def test_loading_shows_no_progress_bar_without_a_terminal(
    tied: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    load_model("m", tied, "float32")
    assert capfd.readouterr() == ("", "")
