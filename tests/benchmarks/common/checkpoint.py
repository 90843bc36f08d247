"""Models of the benchmarks: GPT-2's sizes with random weights, drawn from a seed."""

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from .paths import WORK, environment_python
from .protocol import token_text

CHECKPOINT = WORK / "gpt2-small"
CONVERTED = WORK / "gpt2-small-ctranslate2"

SEED = 0
POSITIONS, VOCABULARY = 1024, 50257
PARAMETERS = 124_439_808
END_TOKEN = VOCABULARY - 1
# GPT-2's initial deviation, and larger ones for attention and layers. Without these, generations
# would repeat their last token.
DEVIATION, ATTENTION_DEVIATION, FEED_FORWARD_DEVIATION = 0.02, 0.08, 0.04


@dataclass(frozen=True, kw_only=True)
class Size:
    """The size of the model."""

    layers: int
    width: int
    heads: int


SMALL = Size(layers=12, width=768, heads=12)
LARGE = Size(layers=36, width=1280, heads=20)
# A small model to try out the benchmarks; its figures have no meaning.
TINY = Size(layers=2, width=64, heads=4)


def make_checkpoint(directory: Path, size: Size = SMALL) -> None:
    """Writes the checkpoint in the Hugging Face layout, unless it exists."""
    if directory.exists():
        return
    unfinished = directory.with_name(f"{directory.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    save_file(_weights(size), unfinished / "model.safetensors", metadata={"format": "pt"})
    for name, content in {
        "config.json": _config(size),
        "tokenizer.json": _tokenizer(),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": token_text(END_TOKEN),
            "eos_token": token_text(END_TOKEN),
            "unk_token": token_text(END_TOKEN),
        },
    }.items():
        (unfinished / name).write_text(json.dumps(content), encoding="utf-8")
    unfinished.rename(directory)


def convert_checkpoint(directory: Path, converted: Path) -> None:
    """Converts the model with CTranslate2's converter, unless it exists."""
    if converted.exists():
        return
    unfinished = converted.with_name(f"{converted.name}.unfinished")
    converter = environment_python(".venvs/bench-torch").with_name("ct2-transformers-converter")
    subprocess.run(
        [str(converter), "--force", f"--model={directory}", f"--output_dir={unfinished}"],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    unfinished.rename(converted)


def _weights(size: Size) -> dict[str, NDArray[np.float32]]:
    rng, width = np.random.default_rng(SEED), size.width
    weights: dict[str, NDArray[np.float32]] = {}

    def draw(name: str, *shape: int, mean: float = 0, deviation: float = DEVIATION) -> None:
        drawn = rng.standard_normal(shape, dtype=np.float32) * np.float32(deviation)
        weights[f"transformer.{name}"] = drawn + np.float32(mean)

    def draw_norm(name: str) -> None:
        draw(f"{name}.weight", width, mean=1)
        draw(f"{name}.bias", width)

    def draw_linear(name: str, inputs: int, outputs: int, deviation: float = DEVIATION) -> None:
        draw(f"{name}.weight", inputs, outputs, deviation=deviation)
        draw(f"{name}.bias", outputs)

    draw("wte.weight", VOCABULARY, width)
    draw("wpe.weight", POSITIONS, width)
    for layer in range(size.layers):
        draw_norm(f"h.{layer}.ln_1")
        draw_linear(f"h.{layer}.attn.c_attn", width, 3 * width, ATTENTION_DEVIATION)
        draw_linear(f"h.{layer}.attn.c_proj", width, width)
        draw_norm(f"h.{layer}.ln_2")
        draw_linear(f"h.{layer}.mlp.c_fc", width, 4 * width, FEED_FORWARD_DEVIATION)
        draw_linear(f"h.{layer}.mlp.c_proj", 4 * width, width, FEED_FORWARD_DEVIATION)
    draw_norm("ln_f")
    # Its logit is always 0, far below the best of 50 000 random ones. So no contestant ever
    # generates it, and all generate the same number of tokens.
    weights["transformer.wte.weight"][END_TOKEN] = 0
    return weights


def _config(size: Size) -> dict[str, Any]:
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "n_layer": size.layers,
        "n_embd": size.width,
        "n_head": size.heads,
        "n_positions": POSITIONS,
        "vocab_size": VOCABULARY,
        "activation_function": "gelu_new",
        "bos_token_id": None,
        "eos_token_id": None,
    }


def _tokenizer() -> dict[str, Any]:
    """A made-up word for each token, because CTranslate2 takes words and services return text."""
    words = {token_text(token): token for token in range(VOCABULARY)}
    return {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": words, "unk_token": token_text(END_TOKEN)},
    }
