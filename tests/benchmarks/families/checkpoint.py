"""Models with random weights of four families' shapes, drawn from a seed.

Weights are in bfloat16, as most checkpoints are published; contestants that compute in float32 get
the same values. Those of GPT-2 are in float32, as `make bench` has them.
"""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from common.checkpoint import END_TOKEN, LARGE, SMALL, TINY, VOCABULARY, Size
from common.checkpoint import make_checkpoint as make_gpt2
from common.paths import WORK
from common.protocol import token_text

SEED = 0
# Enough for all workloads. Longer models would only get longer caches.
POSITIONS = 1024

# Name, shape, and deviation; a deviation of 0 means that all are 1, as in norms.
Tensor = tuple[str, Sequence[int], float]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A model's family and dimensions.

    Attributes:
        name: Name of its folder in `build/bench`.
        label: Label in tables.
        config: Its config.json.
        vocabulary: Number of tokens.
        special: The texts of special tokens by their ids, which are never generated.
        special_tokens: The same by their roles in tokenizer_config.json.
        tensors: Its weights.
        embeddings: Name of the embeddings, which the head shares.
        write: Writes the checkpoint to a directory, unless it exists; None for one of `config`,
            `special_tokens`, `tensors` and `embeddings`.
    """

    name: str
    label: str
    config: Mapping[str, Any]
    vocabulary: int
    special: Mapping[int, str]
    special_tokens: Mapping[str, str]
    tensors: Callable[[], Iterator[Tensor]]
    embeddings: str
    write: Callable[[Path], None] | None = None

    @property
    def has_encoder(self) -> bool:
        """Whether it reads a source."""
        return bool(self.config.get("is_encoder_decoder"))

    @property
    def checkpoint(self) -> Path:
        """The checkpoint in the Hugging Face layout."""
        return WORK / self.name

    @property
    def converted(self) -> Path:
        """The checkpoint in CTranslate2's format."""
        return WORK / f"{self.name}-ctranslate2"

    def draw_prompts(self, rng: np.random.Generator, rows: int, length: int) -> list[list[int]]:
        """Draws token ids without special tokens."""
        found: list[list[int]] = rng.choice(self._plain, size=(rows, length)).tolist()
        return found

    @cached_property
    def _plain(self) -> NDArray[np.int64]:
        return np.setdiff1d(np.arange(self.vocabulary), list(self.special))


def make_checkpoint(shape: Shape) -> None:
    """Writes the checkpoint in the Hugging Face layout, unless it exists."""
    directory = shape.checkpoint
    if shape.write is not None:
        shape.write(directory)
        return
    if directory.exists():
        return
    unfinished = directory.with_name(f"{directory.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    save_file(_weights(shape), unfinished / "model.safetensors", metadata={"format": "pt"})
    for name, content in {
        "config.json": shape.config,
        "tokenizer.json": _tokenizer(shape),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            **shape.special_tokens,
        },
    }.items():
        (unfinished / name).write_text(json.dumps(content), encoding="utf-8")
    unfinished.rename(directory)


def _weights(shape: Shape) -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(SEED)
    weights: dict[str, NDArray[Any]] = {}
    for name, size, deviation in shape.tensors():
        values = np.ones(size, np.float32)
        if deviation:
            values = rng.standard_normal(size, dtype=np.float32) * np.float32(deviation)
        weights[name] = values.astype(ml_dtypes.bfloat16)
    # Their logits are always 0, far below the best of all random ones. So no contestant ever
    # generates them, and all generate the same number of tokens.
    weights[shape.embeddings][list(shape.special)] = 0
    return weights


def _tokenizer(shape: Shape) -> dict[str, Any]:
    """A made-up word for each token, because CTranslate2 takes words."""
    words = {
        shape.special.get(token, token_text(token)): token for token in range(shape.vocabulary)
    }
    return {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "vocab": words,
            "unk_token": shape.special_tokens["unk_token"],
        },
    }


def _qwen3(
    *, layers: int, width: int, inner: int, heads: int, key_heads: int, head_size: int, tokens: int
) -> dict[str, Any]:
    end = tokens - 1
    deviation = width**-0.5

    def tensors() -> Iterator[Tensor]:
        yield "model.embed_tokens.weight", (tokens, width), deviation
        yield "model.norm.weight", (width,), 0
        for layer in range(layers):
            prefix = f"model.layers.{layer}"
            for name, outputs in (("q", heads), ("k", key_heads), ("v", key_heads)):
                name = f"{prefix}.self_attn.{name}_proj.weight"
                yield name, (outputs * head_size, width), deviation
            name, inputs = f"{prefix}.self_attn.o_proj.weight", heads * head_size
            yield name, (width, inputs), inputs**-0.5
            for name in ("gate", "up"):
                yield f"{prefix}.mlp.{name}_proj.weight", (inner, width), deviation
            yield f"{prefix}.mlp.down_proj.weight", (width, inner), inner**-0.5
            for name in ("input_layernorm", "post_attention_layernorm"):
                yield f"{prefix}.{name}.weight", (width,), 0
            for name in ("q_norm", "k_norm"):
                yield f"{prefix}.self_attn.{name}.weight", (head_size,), 0

    return {
        "vocabulary": tokens,
        "special": {end: token_text(end)},
        "special_tokens": dict.fromkeys(("bos_token", "eos_token", "unk_token"), token_text(end)),
        "embeddings": "model.embed_tokens.weight",
        "tensors": tensors,
        "config": {
            "model_type": "qwen3",
            "architectures": ["Qwen3ForCausalLM"],
            "torch_dtype": "bfloat16",
            "vocab_size": tokens,
            "hidden_size": width,
            "intermediate_size": inner,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": key_heads,
            "head_dim": head_size,
            "max_position_embeddings": POSITIONS,
            "rms_norm_eps": 1e-6,
            "rope_theta": 1_000_000.0,
            "hidden_act": "silu",
            "tie_word_embeddings": True,
            "bos_token_id": None,
            "eos_token_id": None,
        },
    }


def _seq2seq(
    *,
    config: Mapping[str, Any],
    layers: int,
    width: int,
    heads: int,
    inner: int,
    tokens: int,
    special: Mapping[int, str],
    special_tokens: Mapping[str, str],
    learned_positions: int = 0,
) -> dict[str, Any]:
    deviation = width**-0.5

    def tensors() -> Iterator[Tensor]:
        def linear(name: str, inputs: int, outputs: int) -> Iterator[Tensor]:
            yield f"{name}.weight", (outputs, inputs), inputs**-0.5
            yield f"{name}.bias", (outputs,), 0.1

        def norm(name: str) -> Iterator[Tensor]:
            yield f"{name}.weight", (width,), 0
            yield f"{name}.bias", (width,), 0.1

        # Small if it is scaled by the root of the width, so that positions matter.
        yield "model.shared.weight", (tokens, width), deviation
        for stack, attentions in (
            ("encoder", ("self_attn",)),
            ("decoder", ("self_attn", "encoder_attn")),
        ):
            if learned_positions:
                positions = f"model.{stack}.embed_positions.weight"
                yield positions, (learned_positions, width), deviation
                yield from norm(f"model.{stack}.layernorm_embedding")
            for layer in range(layers):
                prefix = f"model.{stack}.layers.{layer}"
                for attention in attentions:
                    for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
                        yield from linear(f"{prefix}.{attention}.{name}", width, width)
                    yield from norm(f"{prefix}.{attention}_layer_norm")
                yield from linear(f"{prefix}.fc1", width, inner)
                yield from linear(f"{prefix}.fc2", inner, width)
                yield from norm(f"{prefix}.final_layer_norm")

    return {
        "vocabulary": tokens,
        "special": special,
        "special_tokens": special_tokens,
        "embeddings": "model.shared.weight",
        "tensors": tensors,
        "config": {
            "torch_dtype": "bfloat16",
            "is_encoder_decoder": True,
            "vocab_size": tokens,
            "d_model": width,
            **{f"{stack}_layers": layers for stack in ("encoder", "decoder")},
            **{f"{stack}_attention_heads": heads for stack in ("encoder", "decoder")},
            **{f"{stack}_ffn_dim": inner for stack in ("encoder", "decoder")},
            "tie_word_embeddings": True,
            "forced_bos_token_id": None,
            "forced_eos_token_id": None,
            **config,
        },
    }


def _bart(*, layers: int, width: int, heads: int, inner: int, tokens: int) -> dict[str, Any]:
    special = {0: "<s>", 1: "<pad>", 2: "</s>", 3: "<unk>"}
    return _seq2seq(
        layers=layers,
        width=width,
        heads=heads,
        inner=inner,
        tokens=tokens,
        special=special,
        special_tokens={
            "bos_token": "<s>",
            "pad_token": "<pad>",
            "eos_token": "</s>",
            "unk_token": "<unk>",
        },
        # The first two are never used.
        learned_positions=POSITIONS + 2,
        config={
            "model_type": "bart",
            "architectures": ["BartForConditionalGeneration"],
            "activation_function": "gelu",
            "normalize_before": False,
            "normalize_embedding": True,
            "max_position_embeddings": POSITIONS,
            "scale_embedding": False,
            "bos_token_id": 0,
            "pad_token_id": 1,
            "eos_token_id": 2,
            "decoder_start_token_id": 2,
        },
    )


def _marian(*, layers: int, width: int, heads: int, inner: int, tokens: int) -> dict[str, Any]:
    pad = tokens - 1
    return _seq2seq(
        layers=layers,
        width=width,
        heads=heads,
        inner=inner,
        tokens=tokens,
        special={0: "</s>", 1: "<unk>", pad: "<pad>"},
        special_tokens={"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"},
        config={
            "model_type": "marian",
            "architectures": ["MarianMTModel"],
            "activation_function": "swish",
            "max_position_embeddings": 512,
            "scale_embedding": True,
            "static_position_embeddings": True,
            "pad_token_id": pad,
            "eos_token_id": 0,
            "decoder_start_token_id": pad,
        },
    )


def _gpt2(size: Size) -> dict[str, Any]:
    return {
        "vocabulary": VOCABULARY,
        "special": {END_TOKEN: token_text(END_TOKEN)},
        "special_tokens": {},
        "embeddings": "transformer.wte.weight",
        "tensors": lambda: iter(()),
        "config": {"model_type": "gpt2"},
        "write": partial(make_gpt2, size=size),
    }


GPT2 = Shape(name="gpt2-small", label="GPT-2 small", **_gpt2(SMALL))
GPT2_LARGE = Shape(name="gpt2-large", label="GPT-2 large", **_gpt2(LARGE))
QWEN3 = Shape(
    name="qwen3-0.6b",
    label="Qwen3-0.6B",
    **_qwen3(
        layers=28, width=1024, inner=3072, heads=16, key_heads=8, head_size=128, tokens=151_936
    ),
)
BART = Shape(
    name="bart-base",
    label="BART-base",
    **_bart(layers=6, width=768, heads=12, inner=3072, tokens=50_265),
)
MARIAN = Shape(
    name="marian",
    label="Marian (OPUS-MT)",
    **_marian(layers=6, width=512, heads=8, inner=2048, tokens=58_101),
)
# Small models to try out the benchmark; their figures have no meaning.
TINY_GPT2 = Shape(name="gpt2-tiny", label="tiny GPT-2", **_gpt2(TINY))
TINY_QWEN3 = Shape(
    name="qwen3-tiny",
    label="tiny Qwen3",
    **_qwen3(layers=2, width=256, inner=512, heads=4, key_heads=2, head_size=64, tokens=2048),
)
TINY_BART = Shape(
    name="bart-tiny",
    label="tiny BART",
    **_bart(layers=2, width=64, heads=4, inner=128, tokens=2048),
)
TINY_MARIAN = Shape(
    name="marian-tiny",
    label="tiny Marian",
    **_marian(layers=2, width=64, heads=4, inner=128, tokens=2048),
)
