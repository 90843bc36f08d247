"""OPT's variants, each compared with an equivalent one; goldens compare with the reference."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import save_file

from harness.engine import prompt_attention
from shaperouter_service.errors import StartupError
from shaperouter_service.models import Model, load_model
from shaperouter_service.models.layers import layer_norm

WIDTH, INNER, EMBEDDED, VOCAB_SIZE, POSITIONS, LAYERS = 24, 40, 16, 50, 32, 2
CONFIG = {
    "model_type": "opt",
    "vocab_size": VOCAB_SIZE,
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 3,
    "ffn_dim": INNER,
    "max_position_embeddings": POSITIONS,
}
TOKENS = [2, 17, 0, 49, 5]

Tensors = dict[str, np.ndarray]
Load = Callable[..., Model]


@pytest.fixture
def tensors() -> Tensors:
    """Random tensors under the names of `OPTForCausalLM`, without the prefix."""
    rng = np.random.default_rng(0)

    def draw(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, np.float32) * np.float32(0.4)

    tensors = {
        "embed_tokens.weight": draw(VOCAB_SIZE, WIDTH),
        "embed_positions.weight": draw(POSITIONS + 2, WIDTH),
        "final_layer_norm.weight": draw(WIDTH),
        "final_layer_norm.bias": draw(WIDTH),
    }
    for layer in range(LAYERS):
        h = f"layers.{layer}"
        for name in ("self_attn_layer_norm", "final_layer_norm"):
            tensors[f"{h}.{name}.weight"] = draw(WIDTH)
            tensors[f"{h}.{name}.bias"] = draw(WIDTH)
        for name, outputs, inputs in (
            *((f"self_attn.{part}_proj", WIDTH, WIDTH) for part in ("q", "k", "v", "out")),
            ("fc1", INNER, WIDTH),
            ("fc2", WIDTH, INNER),
        ):
            tensors[f"{h}.{name}.weight"] = draw(outputs, inputs)
            tensors[f"{h}.{name}.bias"] = draw(outputs)
    return tensors


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def load(
        tensors: Tensors, *, prefix: str = "model.decoder.", head: Any = None, **config: Any
    ) -> Model:
        path = tmp_path / "config.json"
        path.write_text(json.dumps(CONFIG | config))
        named = {f"{prefix}{name}": tensor for name, tensor in tensors.items()}
        if head is not None:
            named["lm_head.weight"] = head
        save_file(named, tmp_path / "model.safetensors")
        return load_model("m", tmp_path, "float32")

    return load


def hidden_states(model: Model) -> np.ndarray:
    attend = prompt_attention(model, len(TOKENS))
    positions = tf.range(len(TOKENS))[tf.newaxis]
    return model.family.forward(model.weights, tf.constant([TOKENS]), positions, attend).numpy()


def logits(model: Model) -> np.ndarray:
    return model.family.logits(model.weights, tf.constant(hidden_states(model))).numpy()


def edited(tensors: Tensors, *parts: str, value: float) -> Tensors:
    """A copy in which tensors whose names have one of these parts are filled with a value."""
    return {
        name: np.full_like(tensor, value) if any(part in name for part in parts) else tensor
        for name, tensor in tensors.items()
    }


def without(tensors: Tensors, *parts: str) -> Tensors:
    return {
        name: tensor for name, tensor in tensors.items() if not any(part in name for part in parts)
    }


LINEAR_BIASES = ("_proj.bias", "fc1.bias", "fc2.bias")


@pytest.mark.parametrize("before", [True, False])
def test_a_model_without_biases_equals_one_with_zero_biases(
    tensors: Tensors, load: Load, before: bool
) -> None:
    zero = logits(load(edited(tensors, *LINEAR_BIASES, value=0), do_layer_norm_before=before))
    none = load(without(tensors, *LINEAR_BIASES), enable_bias=False, do_layer_norm_before=before)
    np.testing.assert_array_equal(logits(none), zero)


def test_norms_without_gains_and_biases_equal_those_with_gains_of_one(
    tensors: Tensors, load: Load
) -> None:
    plain = edited(tensors, "layer_norm.weight", value=1)
    plain = edited(plain, "layer_norm.bias", value=0)
    expected = logits(load(plain))
    found = logits(load(without(tensors, "layer_norm"), layer_norm_elementwise_affine=False))
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_an_output_matrix_of_its_own(tensors: Tensors, load: Load) -> None:
    tied = logits(load(tensors))
    head = tensors["embed_tokens.weight"][::-1].copy()
    untied = logits(load(tensors, head=head, tie_word_embeddings=False))
    np.testing.assert_allclose(untied, tied[..., ::-1], atol=1e-5)


def test_without_the_final_norm(tensors: Tensors, load: Load) -> None:
    whole = load(tensors)
    expected = hidden_states(whole)
    bare = load(tensors, _remove_final_layer_norm=True)
    normed = layer_norm(whole.weights, "final_layer_norm", hidden_states(bare), 1e-5)
    np.testing.assert_allclose(normed, expected, atol=1e-5)


def test_norms_after_the_layers_need_no_final_norm(tensors: Tensors, load: Load) -> None:
    final = ("final_layer_norm.weight", "final_layer_norm.bias")
    less = {name: tensor for name, tensor in tensors.items() if name not in final}
    states = hidden_states(load(less, do_layer_norm_before=False))
    last = f"layers.{LAYERS - 1}.final_layer_norm"
    # What a layer norm gives: less its bias and gain, the mean is 0 and the variance 1.
    plain = (states - tensors[f"{last}.bias"]) / tensors[f"{last}.weight"]
    np.testing.assert_allclose(plain.mean(-1), 0, atol=1e-3)
    np.testing.assert_allclose(plain.var(-1), 1, atol=1e-2)


@pytest.mark.parametrize("embedded", [EMBEDDED, 2 * WIDTH])
def test_embeddings_of_another_width_are_projected(
    tensors: Tensors, load: Load, embedded: int
) -> None:
    rng = np.random.default_rng(1)
    inwards = rng.standard_normal((WIDTH, embedded), np.float32)
    outwards = rng.standard_normal((embedded, WIDTH), np.float32)
    tokens = rng.standard_normal((VOCAB_SIZE, embedded), np.float32)
    projected = {
        "embed_tokens.weight": tokens,
        "project_in.weight": inwards,
        "project_out.weight": outwards,
    }
    found = logits(load(tensors | projected, word_embed_proj_dim=embedded))
    # The same model with both projections multiplied into its embeddings.
    multiplied = tensors | {"embed_tokens.weight": tokens @ inwards.T}
    expected = logits(load(multiplied, head=tokens @ outwards, tie_word_embeddings=False))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("prefix", ["model.decoder.", "decoder."])
def test_names_with_and_without_prefix(tensors: Tensors, load: Load, prefix: str) -> None:
    expected = logits(load(tensors))
    np.testing.assert_array_equal(logits(load(tensors, prefix=prefix)), expected)


def test_limits_and_defaults(tensors: Tensors, load: Load) -> None:
    model = load(tensors)
    assert model.family.max_length == POSITIONS
    assert (model.family.heads, model.family.head_size) == (3, 8)
    assert model.default_options["eos_token_ids"] == (2,)
    assert model.parameters == sum(tensor.size for tensor in tensors.values())


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"num_attention_heads": 5},
            "hidden_size must be a multiple of num_attention_heads, got 24 and 5",
        ),
        ({"activation_function": "maxout"}, "activation_function must be one of .* got 'maxout'"),
        (
            {"word_embed_proj_dim": 16},
            r"embed_tokens\.weight has shape \[50, 24\], but .* \[50, 16",
        ),
        ({"max_position_embeddings": 64}, r"has shape \[34, 24\], but .* implies \[66, 24\]"),
        ({"num_hidden_layers": 3}, r"tensor model\.decoder\.layers\.2\.\S+ is missing"),
        ({"tie_word_embeddings": False}, r"tensor lm_head\.weight is missing"),
        ({"enable_bias": "yes"}, "enable_bias must be of type bool, got 'yes'"),
    ],
)
def test_a_config_that_cannot_be_served(
    tensors: Tensors, load: Load, config: dict[str, Any], message: str
) -> None:
    with pytest.raises(StartupError, match=message):
        load(tensors, **config)
