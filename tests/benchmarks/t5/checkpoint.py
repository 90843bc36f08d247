"""A T5 of the small size (1.0: ReLU, tied head) with random weights, drawn from a seed."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from common.paths import WORK
from common.protocol import token_text

CHECKPOINT = WORK / "t5-small"
CONVERTED = WORK / "t5-small-ctranslate2"

SEED = 0
LAYERS, WIDTH, HEADS, HEAD_SIZE, INNER, VOCABULARY, BUCKETS = 6, 512, 8, 64, 2048, 32128, 32
PAD_TOKEN, END_TOKEN, UNKNOWN_TOKEN = 0, 1, 2
SPECIAL = (PAD_TOKEN, END_TOKEN, UNKNOWN_TOKEN)
# T5 does not scale attention by the head size: its queries are drawn smaller instead.
QUERY_DEVIATION = (WIDTH * HEAD_SIZE) ** -0.5
DEVIATION, INNER_DEVIATION, BIAS_DEVIATION = WIDTH**-0.5, INNER**-0.5, 1.0


def make_checkpoint(directory: Path) -> None:
    """Writes the checkpoint in the Hugging Face layout, unless it exists."""
    if directory.exists():
        return
    unfinished = directory.with_name(f"{directory.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    save_file(_weights(), unfinished / "model.safetensors", metadata={"format": "pt"})
    for name, content in {
        "config.json": _config(),
        "tokenizer.json": _tokenizer(),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "pad_token": token_text(PAD_TOKEN),
            "eos_token": token_text(END_TOKEN),
            "unk_token": token_text(UNKNOWN_TOKEN),
        },
    }.items():
        (unfinished / name).write_text(json.dumps(content), encoding="utf-8")
    unfinished.rename(directory)


def _weights() -> dict[str, NDArray[np.float32]]:
    rng = np.random.default_rng(SEED)
    weights: dict[str, NDArray[np.float32]] = {}

    def draw(name: str, *shape: int, deviation: float) -> None:
        weights[name] = rng.standard_normal(shape, dtype=np.float32) * np.float32(deviation)

    def draw_norm(name: str) -> None:
        weights[f"{name}.weight"] = np.ones(WIDTH, np.float32)

    def draw_attention(name: str) -> None:
        inner = HEADS * HEAD_SIZE
        draw(f"{name}.q.weight", inner, WIDTH, deviation=4 * QUERY_DEVIATION)
        draw(f"{name}.k.weight", inner, WIDTH, deviation=DEVIATION)
        draw(f"{name}.v.weight", inner, WIDTH, deviation=DEVIATION)
        draw(f"{name}.o.weight", WIDTH, inner, deviation=inner**-0.5)

    draw("shared.weight", VOCABULARY, WIDTH, deviation=1.0)
    for stack, attentions in (
        ("encoder", ("SelfAttention",)),
        ("decoder", ("SelfAttention", "EncDecAttention")),
    ):
        for block in range(LAYERS):
            layers = f"{stack}.block.{block}.layer"
            for number, attention in enumerate(attentions):
                draw_attention(f"{layers}.{number}.{attention}")
                draw_norm(f"{layers}.{number}.layer_norm")
            last = f"{layers}.{len(attentions)}"
            draw(f"{last}.DenseReluDense.wi.weight", INNER, WIDTH, deviation=DEVIATION)
            draw(f"{last}.DenseReluDense.wo.weight", WIDTH, INNER, deviation=INNER_DEVIATION)
            draw_norm(f"{last}.layer_norm")
        bias = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        draw(bias, BUCKETS, HEADS, deviation=BIAS_DEVIATION)
        draw_norm(f"{stack}.final_layer_norm")
    # Their logits are always 0, far below the best of 32 000 random ones. So no contestant ever
    # generates them, and all generate the same number of tokens.
    weights["shared.weight"][list(SPECIAL)] = 0
    return weights


def _config() -> dict[str, Any]:
    return {
        "model_type": "t5",
        "architectures": ["T5ForConditionalGeneration"],
        "d_model": WIDTH,
        "d_kv": HEAD_SIZE,
        "d_ff": INNER,
        "num_layers": LAYERS,
        "num_decoder_layers": LAYERS,
        "num_heads": HEADS,
        "relative_attention_num_buckets": BUCKETS,
        "relative_attention_max_distance": 128,
        "n_positions": 512,
        "vocab_size": VOCABULARY,
        "feed_forward_proj": "relu",
        "tie_word_embeddings": True,
        "dropout_rate": 0.0,
        "layer_norm_epsilon": 1e-6,
        "pad_token_id": PAD_TOKEN,
        "eos_token_id": END_TOKEN,
        "decoder_start_token_id": PAD_TOKEN,
    }


def _tokenizer() -> dict[str, Any]:
    """A made-up word for each token, because CTranslate2 takes words."""
    words = {token_text(token): token for token in range(VOCABULARY)}
    return {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": words, "unk_token": token_text(UNKNOWN_TOKEN)},
    }
