"""Tiny checkpoints: random weights in the shapes of the supported models, with their quirks."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    GenerationConfig,
    GPT2Config,
    GPT2LMHeadModel,
    MT5ForConditionalGeneration,
    OPTForCausalLM,
    PreTrainedModel,
    T5ForConditionalGeneration,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TinyCheckpoint:
    """One random checkpoint: its dimensions, its quirks and how its weights are drawn.

    Attributes:
        name: Folder under ``tests/goldens``, and name of the JSON beside it.
        seed: Seed of the weights, changed by hand until the checks of the script pass.
        config: Differences from the defaults of the model's configuration.
        eos_token_ids: Written to ``generation_config.json``; ``config.json`` has only the first.
        eos_gains: A factor on each end token's output row, which sets how often it wins.
        option_cases: Recipes of ``options`` that it uses: all, or every fourth.
        model: The reference's class.
        dtype: Type of the weights on disk; the reference computes in float32 in any case.
        base_model: Save it without its head, as the class whose keys lack the first prefix; GPT-2
            with the buffers that old versions of Transformers kept beside the weights.
        own_head: Write it as T5 1.1 is: with a head separate from the embedding. The reference ties
            them in new models, and keeps them apart if a checkpoint has both.
        output_gain: A factor on the gain of the last norm, for models whose scaled outputs would
            all be alike.
        max_shard_size: Above it the weights are split into several files with an index.
    """

    name: str
    seed: int
    config: dict[str, Any]
    eos_token_ids: tuple[int, ...]
    eos_gains: tuple[float, ...]
    option_cases: slice
    model: type[PreTrainedModel] = GPT2LMHeadModel
    dtype: torch.dtype = torch.float32
    base_model: bool = False
    own_head: bool = False
    output_gain: float = 1.0
    max_shard_size: str = "1GB"


TINY_CHECKPOINTS = (
    # Heads and vocabulary are odd: nothing that splits them divides evenly.
    TinyCheckpoint(
        name="gpt2-odd-heads",
        seed=1,
        config={"n_layer": 2, "n_embd": 48, "n_head": 3, "vocab_size": 101, "n_positions": 128},
        eos_token_ids=(100,),
        eos_gains=(1.3,),
        option_cases=slice(None),
    ),
    # Its own output matrix, an unusual MLP and epsilon, several files, and no end token at all.
    TinyCheckpoint(
        name="gpt2-untied",
        seed=2,
        config={
            "n_layer": 2,
            "n_embd": 32,
            "n_head": 4,
            "n_inner": 80,
            "vocab_size": 97,
            "n_positions": 128,
            "layer_norm_epsilon": 1e-3,
            "tie_word_embeddings": False,
        },
        eos_token_ids=(),
        eos_gains=(),
        option_cases=slice(0, None, 4),
        max_shard_size="60KB",
    ),
    # Three end tokens, with the first and the last id among them; a context that is on no ladder.
    TinyCheckpoint(
        name="gpt2-many-eos",
        seed=10,
        config={
            "n_layer": 2,
            "n_embd": 40,
            "n_head": 5,
            "vocab_size": 120,
            "n_positions": 100,
            "activation_function": "gelu",
            "scale_attn_by_inverse_layer_idx": True,
        },
        eos_token_ids=(119, 0, 57),
        eos_gains=(1.1, 1.7, 1.7),
        option_cases=slice(1, None, 4),
    ),
    # As the first GPT-2 checkpoints were saved.
    TinyCheckpoint(
        name="gpt2-bare",
        seed=4,
        config={"n_layer": 2, "n_embd": 32, "n_head": 1, "vocab_size": 128, "n_positions": 128},
        eos_token_ids=(64,),
        eos_gains=(1.3,),
        option_cases=slice(2, None, 4),
        dtype=torch.float16,
        base_model=True,
    ),
    # Layer norms before, none of the others' projections, and the special tokens that OPT has.
    TinyCheckpoint(
        name="opt-pre",
        seed=1,
        config={
            "num_hidden_layers": 2,
            "hidden_size": 36,
            "num_attention_heads": 3,
            "ffn_dim": 100,
            "vocab_size": 110,
            "max_position_embeddings": 128,
            "bos_token_id": 2,
            "pad_token_id": 1,
        },
        eos_token_ids=(2,),
        eos_gains=(1.5,),
        option_cases=slice(None),
        model=OPTForCausalLM,
    ),
    # As opt-350m: layer norms after, embeddings narrower than the layers, no last layer norm.
    TinyCheckpoint(
        name="opt-post",
        seed=7,
        config={
            "num_hidden_layers": 2,
            "hidden_size": 48,
            "word_embed_proj_dim": 32,
            "num_attention_heads": 4,
            "ffn_dim": 96,
            "vocab_size": 103,
            "max_position_embeddings": 100,
            "do_layer_norm_before": False,
            "bos_token_id": 0,
            "pad_token_id": 1,
        },
        eos_token_ids=(102, 7),
        eos_gains=(1.5, 1.5),
        option_cases=slice(3, None, 4),
        model=OPTForCausalLM,
        dtype=torch.float16,
        base_model=True,
    ),
    # As the first T5: the head is the embedding, and distances go far beyond the last bucket.
    TinyCheckpoint(
        name="t5-tied",
        seed=1,
        config={
            "d_model": 32,
            "d_kv": 12,
            "d_ff": 72,
            "num_layers": 2,
            "num_heads": 3,
            "vocab_size": 101,
            "n_positions": 128,
            "relative_attention_num_buckets": 8,
            "relative_attention_max_distance": 20,
            "pad_token_id": 0,
            "decoder_start_token_id": 0,
        },
        eos_token_ids=(1,),
        eos_gains=(2.5,),
        option_cases=slice(4, None, 6),
        model=T5ForConditionalGeneration,
        output_gain=2.5,
    ),
    # As T5 1.1: a gate, a head of its own; more layers to encode than to decode, two end tokens.
    TinyCheckpoint(
        name="t5-gated",
        seed=2,
        config={
            "d_model": 40,
            "d_kv": 16,
            "d_ff": 64,
            "num_layers": 3,
            "num_decoder_layers": 2,
            "num_heads": 4,
            "vocab_size": 110,
            "n_positions": 100,
            "feed_forward_proj": "gated-gelu",
            "pad_token_id": 0,
            "decoder_start_token_id": 0,
        },
        eos_token_ids=(1, 57),
        eos_gains=(1.3, 1.3),
        option_cases=slice(3, None, 6),
        model=T5ForConditionalGeneration,
        own_head=True,
    ),
    # An mT5 in float16, which starts otherwise than with the padding token here.
    TinyCheckpoint(
        name="mt5",
        seed=3,
        config={
            "d_model": 32,
            "d_kv": 8,
            "d_ff": 48,
            "num_layers": 2,
            "num_decoder_layers": 1,
            "num_heads": 4,
            "vocab_size": 128,
            "n_positions": 96,
            "feed_forward_proj": "gated-silu",
            "pad_token_id": 0,
            "decoder_start_token_id": 5,
        },
        eos_token_ids=(1,),
        eos_gains=(2.6,),
        option_cases=slice(1, None, 9),
        model=MT5ForConditionalGeneration,
        dtype=torch.float16,
        own_head=True,
    ),
)

# Standard deviation of a parameter whose name has this part; the first that fits counts. Matrices
# outweigh embeddings, or a tied model repeats its input. Biases add the same to every position,
# so with large ones a few tokens would win everywhere.
WEIGHT_SPREADS = (
    (".bias", 0.1),
    # Nothing but these tells T5 one position from another.
    ("relative_attention_bias.weight", 3.0),
    ("shared.weight", 1.0),
    # T5 divides no score by the root of a head's size.
    ("Attention.q.weight", 0.2),
    ("Attention.k.weight", 0.2),
    ("Attention.o.weight", 0.7),
    ("wpe.weight", 0.6),
    ("wte.weight", 0.4),
    ("embed_positions.weight", 0.6),
    ("embed_tokens.weight", 0.4),
    ("lm_head.weight", 0.4),
    ("c_proj.weight", 0.5),
    ("out_proj.weight", 0.5),
    ("project_out.weight", 0.2),
    ("fc2.weight", 0.5),
    ("weight", 0.4),
)
# Parts of the names of layer norms, whose gains are around 1.
LAYER_NORMS = (".ln_", "layer_norm.")


def draw_weights(model: PreTrainedModel, checkpoint: TinyCheckpoint) -> None:
    """Fill ``model`` with random weights, spread enough that its greedy output varies.

    Biases and the gains of the layer norms are drawn as well: a freshly initialised model has
    zeros and ones there, which would hide an implementation that forgets them.
    """
    rng = np.random.default_rng(checkpoint.seed)
    for name, parameter in sorted(model.named_parameters()):
        values = rng.standard_normal(tuple(parameter.shape))
        if any(part in name for part in LAYER_NORMS) and name.endswith(".weight"):
            values = 1.0 + 0.3 * values
            if name == "decoder.final_layer_norm.weight":
                values *= checkpoint.output_gain
        else:
            values *= next(spread for part, spread in WEIGHT_SPREADS if part in name)
        with torch.no_grad():
            parameter.copy_(torch.from_numpy(values))
    with torch.no_grad():
        # Where the embedding is tied this is the embedding itself.
        for token, gain in zip(checkpoint.eos_token_ids, checkpoint.eos_gains, strict=True):
            model.lm_head.weight[token] *= gain


def add_legacy_buffers(directory: Path, config: GPT2Config) -> None:
    """Add each layer's causal mask and masking value, which a reader must ignore.

    ``attn.bias`` is a trap: its name says bias, and it is a mask.
    """
    path = directory / "model.safetensors"
    tensors = load_file(path)
    n = config.n_positions
    for layer in range(config.n_layer):
        mask = torch.ones(n, n, dtype=torch.uint8).tril().view(1, 1, n, n)
        tensors[f"h.{layer}.attn.bias"] = mask
        tensors[f"h.{layer}.attn.masked_bias"] = torch.tensor(-1e4, dtype=torch.float16)
    save_file(tensors, path, metadata={"format": "pt"})


def write_checkpoint(checkpoint: TinyCheckpoint, parent: Path) -> Path:
    """Write ``checkpoint`` in the Hugging Face layout and return its directory in ``parent``."""
    first_eos = checkpoint.eos_token_ids[0] if checkpoint.eos_token_ids else None
    config = checkpoint.model.config_class(
        **{"bos_token_id": first_eos, "eos_token_id": first_eos, **checkpoint.config}
    )
    model = checkpoint.model(config)
    if checkpoint.own_head:
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.clone())
    draw_weights(model, checkpoint)
    model.to(checkpoint.dtype)

    directory = parent / checkpoint.name
    # Shards left over from an earlier run would be read as well.
    shutil.rmtree(directory, ignore_errors=True)
    saved = model.base_model if checkpoint.base_model else model
    saved.save_pretrained(directory, max_shard_size=checkpoint.max_shard_size)
    if checkpoint.base_model and isinstance(config, GPT2Config):
        add_legacy_buffers(directory, saved.config)
    if checkpoint.own_head:
        path = directory / "config.json"
        written = json.loads(path.read_text()) | {"tie_word_embeddings": False}
        # What Transformers writes since version 5, and those checkpoints do not have.
        written.pop("scale_decoder_outputs", None)
        path.write_text(json.dumps(written, indent=2, sort_keys=True) + "\n")
    many = len(checkpoint.eos_token_ids) > 1
    GenerationConfig(
        bos_token_id=config.bos_token_id,
        eos_token_id=list(checkpoint.eos_token_ids) if many else first_eos,
        pad_token_id=config.pad_token_id,
        decoder_start_token_id=getattr(config, "decoder_start_token_id", None),
    ).save_pretrained(directory)
    for path in directory.glob("*.safetensors"):
        path.chmod(0o644)  # Their writer lets nobody else read them.
    return directory
