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
    BartForConditionalGeneration,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    GenerationConfig,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaForCausalLM,
    M2M100ForConditionalGeneration,
    MarianMTModel,
    MBartForConditionalGeneration,
    MinistralForCausalLM,
    MistralForCausalLM,
    MT5ForConditionalGeneration,
    OPTForCausalLM,
    PegasusForConditionalGeneration,
    Phi3ForCausalLM,
    PreTrainedModel,
    Qwen2ForCausalLM,
    Qwen3ForCausalLM,
    SmolLM3ForCausalLM,
    T5ForConditionalGeneration,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TinyCheckpoint:
    """One random checkpoint: its dimensions, its quirks and how its weights are drawn.

    Attributes:
        name: Folder under ``tests/goldens``, and name of the JSON beside it.
        seed: Seed of the weights, changed by hand until the checks of the script pass.
        config: Differences from the defaults of the model's configuration.
        eos_token_ids: End tokens in ``generation_config.json``; ``config.json`` has the first one.
        eos_gains: Factors on the end tokens' output rows, which set how often they are chosen.
        option_cases: Which of the recipes it uses: all, or a part of them.
        model: The reference's class.
        dtype: Type of the weights on disk; the reference computes in float32 in any case.
        base_model: Save it without its head, so that keys lack the first prefix. A GPT-2 also gets
            the buffers that old versions of Transformers saved.
        own_head: Save a head separate from the embedding, like T5 1.1. The reference ties them in
            new models, and keeps them separate if a checkpoint has both.
        output_gain: A factor on the gain of the last norm, for models whose scaled outputs would
            otherwise hardly differ.
        embedding_gain: A factor on the token embeddings, for models that scale them up.
        gains: Further factors, by a part of parameters' names. Models that normalize sums need
            them: otherwise most of their layers' outputs are the same for all tokens.
        norm_gain: Mean of the gains of norms; 0 for models that add 1 to them.
        logits_bias: Standard deviation of the bias of logits, for models that have one.
        max_shard_size: Maximum size of a file; larger weights are split, with an index.
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
    gains: dict[str, float] = dataclasses.field(default_factory=dict)
    norm_gain: float = 1.0
    embedding_gain: float = 1.0
    logits_bias: float = 0.0
    max_shard_size: str = "1GB"


TINY_CHECKPOINTS = (
    # Odd numbers of heads and tokens, which no split divides evenly.
    TinyCheckpoint(
        name="gpt2-odd-heads",
        seed=1,
        config={"n_layer": 2, "n_embd": 48, "n_head": 3, "vocab_size": 101, "n_positions": 128},
        eos_token_ids=(100,),
        eos_gains=(1.3,),
        option_cases=slice(None),
    ),
    # A separate output matrix, an unusual MLP and epsilon, several files, and no end token.
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
    # Three end tokens, among them the first and the last id; a context length that is no rung.
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
    # Saved like the first GPT-2 checkpoints.
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
    # Layer norms before each part, no projections of embeddings, and OPT's special tokens.
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
    # Like opt-350m: layer norms after each part, narrow embeddings, no last layer norm.
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
    # Like Llama 3: grouped heads, an odd number of keys' heads, scaled frequencies, all biases.
    TinyCheckpoint(
        name="llama",
        seed=2,
        config={
            "num_hidden_layers": 2,
            "hidden_size": 48,
            "intermediate_size": 56,
            "num_attention_heads": 6,
            "num_key_value_heads": 3,
            "vocab_size": 101,
            "max_position_embeddings": 128,
            "attention_bias": True,
            "mlp_bias": True,
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 500.0,
                "factor": 4.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 32,
            },
        },
        eos_token_ids=(100,),
        eos_gains=(1.5,),
        option_cases=slice(0, None, 4),
        model=LlamaForCausalLM,
    ),
    # A tied Qwen 2.5 in bfloat16 whose second layer has a window, with YaRN.
    TinyCheckpoint(
        name="qwen2",
        seed=2,
        config={
            "num_hidden_layers": 2,
            "hidden_size": 40,
            "intermediate_size": 48,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "vocab_size": 110,
            "max_position_embeddings": 100,
            "tie_word_embeddings": True,
            "use_sliding_window": True,
            "sliding_window": 19,
            "max_window_layers": 1,
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 1000.0,
                "factor": 4.0,
                "original_max_position_embeddings": 25,
            },
        },
        eos_token_ids=(109, 5),
        eos_gains=(1.5, 1.5),
        option_cases=slice(1, None, 8),
        model=Qwen2ForCausalLM,
        dtype=torch.bfloat16,
    ),
    # A Qwen 3 whose heads do not divide its width, in several files.
    TinyCheckpoint(
        name="qwen3",
        seed=2,
        config={
            "num_hidden_layers": 2,
            "hidden_size": 36,
            "intermediate_size": 64,
            "num_attention_heads": 5,
            "num_key_value_heads": 1,
            "head_dim": 16,
            "vocab_size": 103,
            "max_position_embeddings": 128,
            "attention_bias": True,
        },
        eos_token_ids=(102,),
        eos_gains=(1.5,),
        option_cases=slice(2, None, 8),
        model=Qwen3ForCausalLM,
        max_shard_size="60KB",
    ),
    # A Mistral with a window in all layers, and frequencies of a longer context.
    TinyCheckpoint(
        name="mistral",
        seed=2,
        config={
            "num_hidden_layers": 2,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 12,
            "vocab_size": 97,
            "max_position_embeddings": 128,
            "sliding_window": 23,
            "tie_word_embeddings": True,
            "rope_parameters": {"rope_type": "linear", "rope_theta": 1000.0, "factor": 2.0},
        },
        eos_token_ids=(96,),
        eos_gains=(1.5,),
        option_cases=slice(3, None, 8),
        model=MistralForCausalLM,
        base_model=True,
    ),
    # A Ministral one of whose layers has a window.
    TinyCheckpoint(
        name="ministral",
        seed=1,
        config={
            "num_hidden_layers": 2,
            "hidden_size": 32,
            "intermediate_size": 40,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "head_dim": 8,
            "vocab_size": 97,
            "max_position_embeddings": 96,
            "sliding_window": 17,
            "layer_types": ["full_attention", "sliding_attention"],
        },
        eos_token_ids=(3,),
        eos_gains=(1.5,),
        option_cases=slice(4, None, 8),
        model=MinistralForCausalLM,
    ),
    # A Gemma 2 with a short window and bounds that matter.
    TinyCheckpoint(
        name="gemma2",
        seed=5,
        config={
            "num_hidden_layers": 3,
            "hidden_size": 36,
            "intermediate_size": 48,
            "num_attention_heads": 6,
            "num_key_value_heads": 3,
            "head_dim": 10,
            "vocab_size": 106,
            "max_position_embeddings": 128,
            "query_pre_attn_scalar": 24,
            "sliding_window": 18,
            "attn_logit_softcapping": 2.0,
            "final_logit_softcapping": 12.0,
        },
        eos_token_ids=(1, 105),
        eos_gains=(1.5, 1.5),
        option_cases=slice(5, None, 8),
        model=Gemma2ForCausalLM,
        norm_gain=0.0,
        embedding_gain=0.2,
        output_gain=6.0,
    ),
    # A Gemma 3 with two windows to one layer without, and two kinds of frequencies.
    TinyCheckpoint(
        name="gemma3",
        seed=2,
        config={
            "num_hidden_layers": 3,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_attention_heads": 4,
            "num_key_value_heads": 1,
            "head_dim": 12,
            "vocab_size": 104,
            "max_position_embeddings": 128,
            "query_pre_attn_scalar": 20,
            "sliding_window": 21,
            "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "rope_theta": 2000.0, "factor": 8.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
            },
        },
        eos_token_ids=(1,),
        eos_gains=(1.5,),
        option_cases=slice(6, None, 8),
        model=Gemma3ForCausalLM,
        norm_gain=0.0,
        embedding_gain=0.2,
        output_gain=6.0,
    ),
    # A Phi-3 with LongRoPE on a part of each head; served up to the original context.
    TinyCheckpoint(
        name="phi3",
        seed=2,
        config={
            "num_hidden_layers": 2,
            "hidden_size": 48,
            "intermediate_size": 40,
            "num_attention_heads": 3,
            "num_key_value_heads": 1,
            "vocab_size": 105,
            "max_position_embeddings": 512,
            "original_max_position_embeddings": 128,
            "pad_token_id": 0,
            "rope_parameters": {
                "rope_type": "longrope",
                "rope_theta": 300.0,
                "partial_rotary_factor": 0.75,
                "short_factor": [1.0, 1.1, 1.3, 1.5, 2.0, 3.0],
                "long_factor": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
            },
        },
        eos_token_ids=(104,),
        eos_gains=(1.5,),
        option_cases=slice(7, None, 8),
        model=Phi3ForCausalLM,
    ),
    # A SmolLM 3 without positions in every second layer, in float16.
    TinyCheckpoint(
        name="smollm3",
        seed=2,
        config={
            "num_hidden_layers": 3,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "vocab_size": 99,
            "max_position_embeddings": 128,
            "pad_token_id": 0,
            "no_rope_layer_interval": 2,
            "use_sliding_window": True,
            "sliding_window": 26,
        },
        eos_token_ids=(98,),
        eos_gains=(1.5,),
        option_cases=slice(0, None, 9),
        model=SmolLM3ForCausalLM,
        dtype=torch.float16,
    ),
    # Like the first T5: tied embeddings, and distances far beyond the last bucket.
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
    # Like T5 1.1: a gate, a separate head, more encoder than decoder layers, two end tokens.
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
    # An mT5 in float16 whose decoder does not start with the padding token.
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
    # A BART with scaled embeddings, and a decoder of other sizes than the encoder's.
    TinyCheckpoint(
        name="bart",
        seed=2,
        config={
            "d_model": 36,
            "encoder_layers": 3,
            "encoder_attention_heads": 4,
            "encoder_ffn_dim": 56,
            "decoder_layers": 2,
            "decoder_attention_heads": 3,
            "decoder_ffn_dim": 64,
            "vocab_size": 103,
            "max_position_embeddings": 128,
            "scale_embedding": True,
            "forced_eos_token_id": None,
        },
        eos_token_ids=(2,),
        eos_gains=(2.0,),
        option_cases=slice(0, None, 6),
        model=BartForConditionalGeneration,
        logits_bias=0.3,
        embedding_gain=0.15,
        gains={
            "embed_positions": 4.0,
            "encoder_attn.out_proj": 0.15,
            "self_attn.out_proj": 0.15,
            "fc2": 0.15,
            "decoder.layers.1.final_layer_norm.weight": 4.0,
        },
    ),
    # An mBART in bfloat16 whose encoder, decoder and head have embeddings of their own.
    TinyCheckpoint(
        name="mbart",
        seed=1,
        config={
            "d_model": 32,
            "encoder_layers": 2,
            "encoder_attention_heads": 2,
            "encoder_ffn_dim": 48,
            "decoder_layers": 2,
            "decoder_attention_heads": 4,
            "decoder_ffn_dim": 40,
            "vocab_size": 110,
            "max_position_embeddings": 100,
            "activation_function": "relu",
            "decoder_start_token_id": 2,
            "tie_word_embeddings": False,
        },
        eos_token_ids=(2,),
        eos_gains=(4.0,),
        option_cases=slice(2, None, 6),
        model=MBartForConditionalGeneration,
        dtype=torch.bfloat16,
        logits_bias=0.3,
        output_gain=2.0,
    ),
    # A Marian model that starts with the padding token, its last one, and an end token of id 0.
    TinyCheckpoint(
        name="marian",
        seed=1,
        config={
            "d_model": 32,
            "encoder_layers": 2,
            "encoder_attention_heads": 4,
            "encoder_ffn_dim": 48,
            "decoder_layers": 2,
            "decoder_attention_heads": 4,
            "decoder_ffn_dim": 48,
            "vocab_size": 101,
            "max_position_embeddings": 96,
            "activation_function": "swish",
            "scale_embedding": True,
            "pad_token_id": 100,
            "decoder_start_token_id": 100,
            "forced_eos_token_id": None,
            "tie_word_embeddings": False,
        },
        eos_token_ids=(0,),
        eos_gains=(2.0,),
        option_cases=slice(3, None, 6),
        model=MarianMTModel,
        logits_bias=0.3,
        gains={
            "encoder_attn.out_proj": 0.1,
            "self_attn.out_proj": 0.05,
            "fc2": 0.1,
            "decoder.layers.1.final_layer_norm.weight": 2.0,
        },
    ),
    # A Pegasus saved without its head, in float16.
    TinyCheckpoint(
        name="pegasus",
        seed=9,
        config={
            "d_model": 40,
            "encoder_layers": 2,
            "encoder_attention_heads": 4,
            "encoder_ffn_dim": 48,
            "decoder_layers": 2,
            "decoder_attention_heads": 2,
            "decoder_ffn_dim": 56,
            "vocab_size": 105,
            "max_position_embeddings": 128,
            "activation_function": "relu",
        },
        eos_token_ids=(1, 77),
        eos_gains=(1.5, 1.5),
        option_cases=slice(4, None, 6),
        model=PegasusForConditionalGeneration,
        dtype=torch.float16,
        base_model=True,
        embedding_gain=0.5,
        output_gain=1.5,
    ),
    # An M2M100 with a padding token other than the default, on which positions depend.
    TinyCheckpoint(
        name="m2m100",
        seed=1,
        config={
            "d_model": 36,
            "encoder_layers": 2,
            "encoder_attention_heads": 3,
            "encoder_ffn_dim": 48,
            "decoder_layers": 3,
            "decoder_attention_heads": 4,
            "decoder_ffn_dim": 40,
            "vocab_size": 107,
            "max_position_embeddings": 112,
            "pad_token_id": 4,
            "decoder_start_token_id": 2,
            "tie_word_embeddings": False,
        },
        eos_token_ids=(2,),
        eos_gains=(2.0,),
        option_cases=slice(5, None, 6),
        model=M2M100ForConditionalGeneration,
        max_shard_size="60KB",
        output_gain=2.0,
        gains={"encoder_attn.out_proj": 0.3},
    ),
)

# Standard deviations of parameters, by a part of their names; the first match counts. Matrices are
# larger than embeddings, because a tied model would otherwise repeat its input. Biases are small:
# they add the same to every position, so large ones would always make the same few tokens win.
WEIGHT_SPREADS = (
    (".bias", 0.1),
    # T5 knows positions only by these.
    ("relative_attention_bias.weight", 3.0),
    ("shared.weight", 1.0),
    # T5 does not divide scores by the square root of a head's size.
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
    ("o_proj.weight", 0.5),
    ("down_proj.weight", 0.5),
    ("weight", 0.4),
)
# The last norms of models, whose gains set how much logits differ.
FINAL_NORMS = (
    "decoder.final_layer_norm.weight",
    "model.norm.weight",
    "model.decoder.layer_norm.weight",
)
# Parts of the names of all norms. Their gains are drawn around 1, or what amounts to it.
NORMS = (".ln_", "layer_norm.", "layernorm.", "_norm.", "model.norm.")


def draw_weights(model: PreTrainedModel, checkpoint: TinyCheckpoint) -> None:
    """Fill ``model`` with random weights, spread enough that its greedy output varies.

    Biases and the gains of the layer norms are drawn as well: a freshly initialised model has
    zeros and ones there, which would hide an implementation that forgets them.
    """
    rng = np.random.default_rng(checkpoint.seed)
    for name, parameter in sorted(model.named_parameters()):
        values = rng.standard_normal(tuple(parameter.shape))
        if any(part in name for part in NORMS) and name.endswith(".weight"):
            values = checkpoint.norm_gain + 0.3 * values
            if name in FINAL_NORMS:
                added = 1.0 - checkpoint.norm_gain
                values = checkpoint.output_gain * (values + added) - added
        else:
            values *= next(spread for part, spread in WEIGHT_SPREADS if part in name)
            if "embed_tokens" in name or name == "model.shared.weight":
                values *= checkpoint.embedding_gain
        for part, gain in checkpoint.gains.items():
            if part in name:
                values *= gain
        with torch.no_grad():
            parameter.copy_(torch.from_numpy(values))
    with torch.no_grad():
        if checkpoint.logits_bias:
            bias = rng.normal(0, checkpoint.logits_bias, tuple(model.final_logits_bias.shape))
            model.final_logits_bias.copy_(torch.from_numpy(bias))
        # If the head is tied, this is the embedding.
        for token, gain in zip(checkpoint.eos_token_ids, checkpoint.eos_gains, strict=True):
            model.lm_head.weight[token] *= gain


def add_legacy_buffers(directory: Path, config: GPT2Config) -> None:
    """Add each layer's causal mask and masking value, which a reader must ignore.

    In spite of its name, ``attn.bias`` is a mask.
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
    # Files of an earlier run would be read, too.
    shutil.rmtree(directory, ignore_errors=True)
    saved = model.base_model if checkpoint.base_model else model
    saved.save_pretrained(directory, max_shard_size=checkpoint.max_shard_size)
    if checkpoint.base_model and isinstance(config, GPT2Config):
        add_legacy_buffers(directory, saved.config)
    if checkpoint.own_head:
        path = directory / "config.json"
        written = json.loads(path.read_text()) | {"tie_word_embeddings": False}
        # Transformers writes it since version 5; published T5 1.1 checkpoints lack it.
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
        path.chmod(0o644)  # safetensors lets only the owner read them.
    return directory
