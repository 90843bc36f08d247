"""T5's variants of configuration and files; goldens compare with the reference."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file

from harness.engine import GOLDENS, last_logits
from shaperouter_service.errors import StartupError
from shaperouter_service.models import DeviceKind, Model, Weights, load_model
from shaperouter_service.models.layers import rms_norm
from shaperouter_service.models.t5 import position_buckets

SOURCE, PROMPT = [5, 17, 66, 3, 88], tf.constant([[0, 9, 33]])

Change = Callable[[dict[str, np.ndarray]], Any]
Load = Callable[..., Model]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def load(name: str = "t5-tied", change: Change = lambda _: None, **config: Any) -> Model:
        """Loads a golden checkpoint with changed tensors and values; None keeps a value."""
        directory = Path(shutil.copytree(GOLDENS / name, tmp_path / name, dirs_exist_ok=True))
        tensors = load_file(directory / "model.safetensors")
        change(tensors)
        save_file(tensors, directory / "model.safetensors")
        path = directory / "config.json"
        content = json.loads(path.read_text()) | config
        kept = {name: value for name, value in content.items() if value is not None}
        path.write_text(json.dumps(kept))
        return load_model("m", directory, "float32")

    return load


def logits(model: Model) -> np.ndarray:
    return np.array(last_logits(model, PROMPT, SOURCE))


@pytest.mark.parametrize("name", ["encoder.embed_tokens.weight", "decoder.embed_tokens.weight"])
def test_shared_embeddings_can_be_stored_under_any_of_their_names(load: Load, name: str) -> None:
    def rename(tensors: dict[str, np.ndarray]) -> None:
        tensors[name] = tensors.pop("shared.weight")

    np.testing.assert_array_equal(logits(load(change=rename)), logits(load()))


def test_an_untied_head_is_used(load: Load) -> None:
    def add_head(tensors: dict[str, np.ndarray]) -> None:
        tensors["lm_head.weight"] = 2 * tensors["shared.weight"]

    np.testing.assert_allclose(logits(load(change=add_head)), 2 * logits(load()), rtol=1e-5)


@pytest.mark.parametrize(
    ("config", "scaled"),
    [
        ({"tie_word_embeddings": True}, True),
        ({"tie_word_embeddings": None}, True),
        ({"tie_word_embeddings": False}, False),
        # As Transformers saves it since version 5.
        ({"tie_word_embeddings": True, "scale_decoder_outputs": False}, False),
    ],
)
def test_outputs_are_scaled_as_configured(load: Load, config: dict[str, Any], scaled: bool) -> None:
    config = {"scale_decoder_outputs": None} | config
    factor = 1.0 if scaled else 32**0.5
    np.testing.assert_allclose(
        logits(load(**config)), factor * logits(load()), rtol=1e-5, atol=1e-4
    )


def test_an_mt5_is_never_scaled(load: Load) -> None:
    assert not load("mt5", tie_word_embeddings=True).family.scale_decoder_outputs


@pytest.mark.parametrize(
    ("feed_forward_proj", "activation", "is_gated"),
    [
        ("relu", "relu", False),
        ("gelu", "gelu", False),
        ("gated-gelu", "gelu_new", True),
        ("gated-silu", "silu", True),
    ],
)
def test_one_word_names_the_kind_of_feed_forward_layer(
    load: Load, feed_forward_proj: str, activation: str, is_gated: bool
) -> None:
    def add_gate(tensors: dict[str, np.ndarray]) -> None:
        for name in [name for name in tensors if name.endswith(".wi.weight")]:
            for part in ("wi_0", "wi_1") if is_gated else ():
                tensors[name.replace(".wi.", f".{part}.")] = tensors[name]

    words = {"feed_forward_proj": feed_forward_proj, "dense_act_fn": None, "is_gated_act": None}
    family = load(change=add_gate, **words).family
    assert (family.dense_act_fn, family.is_gated_act) == (activation, is_gated)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"feed_forward_proj": "gated-sine"}, "feed_forward_proj must be one of"),
        (
            {"relative_attention_num_buckets": 6},
            "relative_attention_num_buckets must be a multiple of 4 .* got 6 and 20",
        ),
        (
            {"relative_attention_max_distance": 4},
            "less than twice relative_attention_max_distance, got 8 and 4",
        ),
        (
            {"relative_attention_max_distance": 10**12},
            "relative_attention_max_distance must be from 1 to 65536, got 1000000000000",
        ),
        ({"d_kv": 16}, r"has shape \[36, 32\], but config.json implies \[48, 32\]"),
    ],
)
def test_an_unusable_value_is_refused_by_name(
    load: Load, config: dict[str, Any], message: str
) -> None:
    with pytest.raises(StartupError, match=message):
        load(**config)


def test_near_keys_have_their_own_buckets_and_far_keys_share_one() -> None:
    buckets = position_buckets(8, 20, bidirectional=False)
    at = dict(zip(range(-20, 21), buckets.tolist(), strict=True))
    assert [at[-distance] for distance in range(5)] == [0, 1, 2, 3, 4]
    assert at[-20] == 7
    assert {at[ahead] for ahead in range(21)} == {0}


def test_an_encoder_distinguishes_keys_before_and_after() -> None:
    buckets = position_buckets(8, 20, bidirectional=True)
    at = dict(zip(range(-20, 21), buckets.tolist(), strict=True))
    assert [at[0], at[-1], at[-20]] == [0, 1, 3]
    assert [at[1], at[20]] == [5, 7]


def test_a_norm_divides_by_the_root_of_the_mean_square() -> None:
    x = np.array([[3.0, -4.0]], np.float32)
    weights = Weights({"n.weight": tf.constant([1.0, 2.0])}, DeviceKind.CPU)
    found = rms_norm(weights, "n", tf.constant(x), 0.0)
    np.testing.assert_allclose(found, [[3 / 12.5**0.5, -8 / 12.5**0.5]], rtol=1e-6)


def test_decoding_reads_no_weight_of_the_encoder(load: Load) -> None:
    model = load()
    of_encoder = {name for name in model.weights if model.family.is_of_encoder(name)}
    assert "encoder.final_layer_norm.weight" in of_encoder
    assert "decoder.block.0.layer.1.EncDecAttention.k.weight" in of_encoder
    assert "decoder.block.0.layer.1.EncDecAttention.q.weight" not in of_encoder
    assert 0 < model.encoder_weight_bytes < model.weight_bytes


def test_the_generation_config_has_the_decoders_start_token(load: Load) -> None:
    assert load("mt5").decoder_start_token_id == 5


def test_a_start_beyond_the_vocabulary_is_refused(load: Load, tmp_path: Path) -> None:
    load()
    path = tmp_path / "t5-tied" / "generation_config.json"
    path.write_text(json.dumps({"decoder_start_token_id": 101}))
    with pytest.raises(StartupError, match="decoder_start_token_id must be from 0 to 100, got 101"):
        load_model("m", tmp_path / "t5-tied", "float32")


def test_a_checkpoint_without_a_start_token_uses_transformers_default(
    load: Load, tmp_path: Path
) -> None:
    load(decoder_start_token_id=None)
    (tmp_path / "t5-tied" / "generation_config.json").unlink()
    assert load_model("m", tmp_path / "t5-tied", "float32").decoder_start_token_id == 0
