"""Decoders with rotary positions: what their configurations may say; goldens compare answers."""

import json
import math
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
from shaperouter_service.models.config import Config
from shaperouter_service.models.gemma import Gemma3
from shaperouter_service.models.loading import read_family, unused_tensors
from shaperouter_service.models.rotary import read_rotary
from shaperouter_service.models.rotary_decoder import NO_WINDOW


def edited(name: str, directory: Path, **values: object) -> Path:
    """A copy of a golden checkpoint with other values in its config.json; None removes one."""
    copy = Path(shutil.copytree(GOLDENS / name, directory / name))
    path = copy / "config.json"
    config = json.loads(path.read_text()) | values
    path.write_text(json.dumps({key: each for key, each in config.items() if each is not None}))
    return copy


def family(directory: Path) -> Any:
    return read_family(Checkpoint(directory, only_headers=True))


def rotary(size: int, **values: object) -> Any:
    return read_rotary(Config(Path("config.json"), values), size)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("llama", {"num_key_value_heads": 4}, "multiple of num_key_value_heads, got 6 and 4"),
        ("llama", {"hidden_act": "mish"}, "hidden_act must be one of .*, got 'mish'"),
        (
            "llama",
            {"rope_parameters": {"rope_type": "mrope"}},
            "rope_type must be one of default, linear, dynamic, llama3, yarn, longrope, got",
        ),
        ("llama", {"rope_scaling": 3}, "rope_scaling must be an object, got 3"),
        (
            "llama",
            {"rope_parameters": {"full_attention": {"rope_type": "default"}}},
            "rope_parameters must be the same for all layers",
        ),
        ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor must be 1 .* got 0.5"),
        (
            "phi3",
            {"rope_parameters": {"partial_rotary_factor": 0.1}},
            "partial_rotary_factor must turn an even",
        ),
        (
            "phi3",
            {"rope_parameters": {"rope_type": "linear"}},
            "rope_type must be one of default, longrope, su, yarn, got 'linear'",
        ),
        ("qwen2", {"layer_types": ["full_attention"]}, "layer_types must be a list of 2 kinds"),
        ("qwen2", {"layer_types": ["full_attention", "local"]}, "layer_types must have .*'local'"),
        (
            "qwen2",
            {"layer_types": ["sliding_attention"] * 2, "use_sliding_window": False},
            "use_sliding_window must be true",
        ),
        ("llama", {"num_hidden_layers": 10**12}, "num_hidden_layers must be from 1 to 10000"),
        ("llama", {"head_dim": 10**12}, "heads must have at most 65536 numbers, got 1000"),
        ("llama", {"rope_parameters": {"rope_theta": 1}}, "rope_theta must be above 1, got 1.0"),
        (
            "llama",
            {
                "rope_parameters": {
                    "rope_type": "yarn",
                    "factor": 2.0,
                    "original_max_position_embeddings": 1,
                }
            },
            "original_max_position_embeddings must be at least 2, got 1",
        ),
        ("gemma2", {"use_bidirectional_attention": True}, "must be false to generate, got True"),
        (
            "phi3",
            {"rope_parameters": {"rope_type": "longrope", "short_factor": [1.0]}},
            "short_factor must be a list of 8 positive numbers",
        ),
        ("smollm3", {"no_rope_layers": [1]}, "no_rope_layers must have 0 or 1 for 3 layers"),
        (
            "mistral",
            {"quantization_config": {"quant_method": "gptq"}},
            "quantization_config must be absent, got 'gptq'",
        ),
    ],
)
def test_what_is_not_supported_is_refused_by_name_and_value(
    tmp_path: Path, name: str, values: dict[str, object], message: str
) -> None:
    with pytest.raises(StartupError, match=message):
        family(edited(name, tmp_path, **values))


def test_scaled_frequencies_stretch_long_waves_only() -> None:
    plain = np.asarray(rotary(64).frequencies)
    scaled = np.asarray(
        rotary(
            64,
            rope_scaling={
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 512,
            },
        ).frequencies
    )
    waves = 512 * plain / (2 * math.pi)
    np.testing.assert_allclose(scaled[waves > 4], plain[waves > 4], rtol=1e-6)
    np.testing.assert_allclose(scaled[waves < 1], plain[waves < 1] / 8, rtol=1e-6)
    between = (waves > 1) & (waves < 4)
    assert between.any()
    assert (scaled[between] < plain[between]).all()
    assert (scaled[between] > plain[between] / 8).all()


def test_dynamic_scaling_changes_nothing_within_the_models_length() -> None:
    assert rotary(16, rope_scaling={"type": "dynamic", "factor": 4.0}) == rotary(16)


def test_scaled_cosines_come_with_yarn_and_longrope() -> None:
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
    assert rotary(16, rope_parameters=yarn).scale == pytest.approx(0.1 * math.log(4) + 1)
    named = yarn | {"mscale": 2.0, "mscale_all_dim": 1.0}
    expected = (0.2 * math.log(4) + 1) / (0.1 * math.log(4) + 1)
    assert rotary(16, rope_parameters=named).scale == pytest.approx(expected)
    assert rotary(16, rope_parameters=yarn | {"attention_factor": 1.5}).scale == 1.5


def test_longrope_is_served_up_to_the_original_length() -> None:
    assert family(GOLDENS / "phi3").max_length == 128


def test_longrope_of_phi_is_served_up_to_the_default_length(tmp_path: Path) -> None:
    config = {"original_max_position_embeddings": None, "max_position_embeddings": 8192}
    # What the parameters say does not count.
    assert family(edited("phi3", tmp_path, **config)).max_length == 4096


@pytest.mark.parametrize("name", ["su", "yarn"])
def test_early_names_of_longrope_are_read(tmp_path: Path, name: str) -> None:
    new = json.loads((GOLDENS / "phi3" / "config.json").read_text())["rope_parameters"]
    old = new | {"type": name, "rope_type": None}
    assert family(edited("phi3", tmp_path, rope_parameters=old)) == family(GOLDENS / "phi3")


def with_images(text: dict[str, Any], **values: object) -> Any:
    """The family of a Gemma 3 with image input, by its text_config."""
    content = {"text_config": text, **values}
    return Gemma3.from_config(Config(Path("config.json"), content))


def test_bounds_that_transformers_does_not_apply_are_ignored(tmp_path: Path) -> None:
    bounds = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
    text = family(edited("gemma3", tmp_path, **bounds))
    whole = with_images(bounds)
    assert [(each.score_cap, each.logit_cap) for each in (text, whole)] == [(0.0, 30.0), (0.0, 0.0)]


def test_a_head_beside_a_text_model_is_tied_by_the_flag_beside_its_config() -> None:
    assert with_images({"tie_word_embeddings": False}).tie_word_embeddings
    untied = with_images({"tie_word_embeddings": True}, tie_word_embeddings=False)
    assert not untied.tie_word_embeddings


def test_a_window_that_no_sequence_exceeds_costs_nothing(tmp_path: Path) -> None:
    wide = family(edited("mistral", tmp_path, sliding_window=128))
    assert min(wide.windows) >= wide.max_length


@pytest.mark.parametrize(
    ("name", "values", "windows"),
    [
        ("qwen2", {"use_sliding_window": False}, (NO_WINDOW, NO_WINDOW)),
        ("qwen2", {"layer_types": None, "max_window_layers": 0}, (19, 19)),
        ("gemma2", {"layer_types": None}, (18, NO_WINDOW, 18)),
        ("gemma3", {"layer_types": None, "sliding_window_pattern": 2}, (21, NO_WINDOW, 21)),
        ("smollm3", {"layer_types": None}, (NO_WINDOW, 26, NO_WINDOW)),
    ],
)
def test_windows_follow_the_pattern_if_no_layer_types_are_given(
    tmp_path: Path, name: str, values: dict[str, object], windows: tuple[int, ...]
) -> None:
    config = {"layer_types": None} | values
    assert family(edited(name, tmp_path, **config)).windows == windows


def test_names_of_older_configurations_are_read(tmp_path: Path) -> None:
    new = json.loads((GOLDENS / "gemma3" / "config.json").read_text())["rope_parameters"]
    old = edited(
        "gemma3",
        tmp_path,
        rope_parameters=None,
        rope_theta=new["full_attention"]["rope_theta"],
        rope_local_base_freq=new["sliding_attention"]["rope_theta"],
        rope_scaling={"rope_type": "linear", "factor": new["full_attention"]["factor"]},
    )
    assert family(old) == family(GOLDENS / "gemma3")


def test_the_text_model_of_a_gemma_that_reads_images_is_served(tmp_path: Path) -> None:
    golden = Golden.read("gemma3")
    directory = edited("gemma3", tmp_path)
    text = json.loads((directory / "config.json").read_text())
    whole = {
        "model_type": "gemma3",
        "architectures": ["Gemma3ForConditionalGeneration"],
        "text_config": text,
        "vision_config": {},
    }
    (directory / "config.json").write_text(json.dumps(whole))
    path = directory / "model.safetensors"
    tensors = {f"language_model.{name}": each for name, each in load_file(path).items()}
    tensors["vision_tower.patch.weight"] = np.zeros([2, 2], np.float32)
    save_file(tensors, path)
    checkpoint = Checkpoint(directory, only_headers=True)
    found = read_family(checkpoint)
    list(found.read_weights(checkpoint, np.dtype(np.float32)))
    assert unused_tensors(checkpoint, found) == []
    model = load_model("m", directory, "float32")
    for case in golden.probabilities[:2]:
        logits = last_logits(model, tf.constant([case["prompt_token_ids"]]))
        probabilities = tf.nn.softmax(logits / case["temperature"])[0].numpy()
        np.testing.assert_allclose(probabilities, case["probabilities"], atol=1e-5)


def test_rotary_buffers_of_old_checkpoints_are_no_weights() -> None:
    redundant = read_family(Checkpoint(GOLDENS / "llama", only_headers=True)).redundant
    assert redundant.fullmatch("model.layers.0.self_attn.rotary_emb.inv_freq")
