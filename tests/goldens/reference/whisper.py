"""Whisper: tiny checkpoints, and what the reference computes of a sound with them."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import (
    GenerationConfig,
    WhisperConfig,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
)

SAMPLE_RATE = 16_000
# Of the decoder's input in the goldens.
TOKENS = 9


@dataclasses.dataclass(frozen=True, kw_only=True)
class TinyWhisper:
    """One random checkpoint.

    Attributes:
        name: Folder under ``tests/goldens``, and name of the file of arrays beside it.
        seed: Of the weights, the sound and the tokens.
        config: What differs from the defaults of the model's configuration.
        languages: How many a multilingual model knows; 0 makes it English-only.
        dtype: Of the weights on disk; the reference computes in float32 whatever it is.
        base_model: Save it as `WhisperModel`, whose keys lack the first prefix.
    """

    name: str
    seed: int
    config: dict[str, Any]
    languages: int
    dtype: torch.dtype = torch.float32
    base_model: bool = False


# Ids below this are text, in the vocabulary of a tiny checkpoint; then come its special tokens.
TEXT_TOKENS = 90

TINY_WHISPERS = (
    # Encoder and decoder differ in whatever they may, and windows are of 0.6 s.
    TinyWhisper(
        name="whisper-uneven",
        seed=1,
        config={
            "d_model": 24,
            "encoder_layers": 2,
            "encoder_attention_heads": 3,
            "encoder_ffn_dim": 40,
            "decoder_layers": 3,
            "decoder_attention_heads": 4,
            "decoder_ffn_dim": 56,
            "max_source_positions": 30,
            "max_target_positions": 64,
        },
        languages=5,
    ),
    # English-only, 128 bands, float16, keys without a prefix.
    TinyWhisper(
        name="whisper-english",
        seed=2,
        config={
            "d_model": 32,
            "encoder_layers": 1,
            "encoder_attention_heads": 2,
            "encoder_ffn_dim": 64,
            "decoder_layers": 2,
            "decoder_attention_heads": 2,
            "decoder_ffn_dim": 64,
            "max_source_positions": 40,
            "max_target_positions": 48,
            "num_mel_bins": 128,
        },
        languages=0,
        dtype=torch.float16,
        base_model=True,
    ),
)

# Standard deviation of a parameter whose name has this part; the first that fits counts.
WEIGHT_SPREADS = (
    (".bias", 0.1),
    ("embed_positions.weight", 0.4),
    ("embed_tokens.weight", 0.4),
    ("out_proj.weight", 0.3),
    ("fc2.weight", 0.3),
    ("conv", 0.1),
    ("weight", 0.3),
)


def special_tokens(languages: int, timestamps: int) -> dict[str, int]:
    """Ids of the special tokens, in Whisper's order, and the size of the vocabulary."""
    names = ["end", "start", *(f"language {index}" for index in range(max(languages, 1)))]
    names += ["translate", "transcribe", "lm", "previous", "no_speech", "no_timestamps"]
    ids = {name: TEXT_TOKENS + index for index, name in enumerate(names)}
    return {**ids, "vocab_size": ids["no_timestamps"] + 1 + timestamps}


def draw_weights(model: WhisperForConditionalGeneration, seed: int) -> None:
    """Fill ``model`` with random weights: biases and gains, too, which are 0 and 1 in a new one."""
    rng = np.random.default_rng(seed)
    for name, parameter in sorted(model.named_parameters()):
        values = rng.standard_normal(tuple(parameter.shape))
        if "layer_norm.weight" in name:
            values = 1.0 + 0.3 * values
        else:
            values *= next(spread for part, spread in WEIGHT_SPREADS if part in name)
        with torch.no_grad():
            parameter.copy_(torch.from_numpy(values))


def write_checkpoint(checkpoint: TinyWhisper, parent: Path) -> Path:
    """Write ``checkpoint`` in the Hugging Face layout and return its directory in ``parent``."""
    timestamps = checkpoint.config["max_source_positions"] + 1
    ids = special_tokens(checkpoint.languages, timestamps)
    common = {
        "bos_token_id": ids["end"],
        "eos_token_id": ids["end"],
        "pad_token_id": ids["end"],
        "decoder_start_token_id": ids["start"],
    }
    config = WhisperConfig(**checkpoint.config, **common, vocab_size=ids["vocab_size"])
    model = WhisperForConditionalGeneration(config)
    draw_weights(model, checkpoint.seed)
    model.to(checkpoint.dtype)

    directory = parent / checkpoint.name
    shutil.rmtree(directory, ignore_errors=True)
    saved = model.model if checkpoint.base_model else model
    saved.save_pretrained(directory)
    generation = {
        **common,
        "alignment_heads": [[layer, layer % 2] for layer in range(config.decoder_layers)],
        "begin_suppress_tokens": [3, ids["end"]],
        "is_multilingual": bool(checkpoint.languages),
        "max_initial_timestamp_index": 10,
        "max_length": config.max_target_positions,
        "no_timestamps_token_id": ids["no_timestamps"],
        "prev_sot_token_id": ids["previous"],
        "suppress_tokens": [1, 2, ids["start"], *range(ids["translate"], ids["no_timestamps"])],
    }
    if checkpoint.languages:
        tasks = {task: ids[task] for task in ("translate", "transcribe")}
        languages = {
            f"<|l{index}|>": ids[f"language {index}"] for index in range(checkpoint.languages)
        }
        generation |= {"lang_to_id": languages, "task_to_id": tasks}
    GenerationConfig(**generation).save_pretrained(directory)
    for path in directory.glob("*.safetensors"):
        path.chmod(0o644)  # Their writer lets nobody else read them.
    return directory


def expect_arrays(checkpoint: TinyWhisper, parent: Path) -> None:
    """Write what the reference computes of a random sound and random tokens."""
    directory = parent / checkpoint.name
    model = WhisperForConditionalGeneration.from_pretrained(directory, dtype=torch.float32)
    # Weights of cross-attention are kept by this way of computing it alone.
    model.set_attn_implementation("eager")
    model.eval()
    rng = np.random.default_rng(checkpoint.seed)
    window = 2 * model.config.max_source_positions * 160
    # The last quarter is silent: a sound that is shorter than a window.
    samples = (0.1 * rng.standard_normal(window)).astype(np.float32)
    samples[3 * window // 4 :] = 0
    extractor = WhisperFeatureExtractor(
        feature_size=model.config.num_mel_bins, chunk_length=window / SAMPLE_RATE
    )
    extractor.n_samples = window
    features = extractor(samples, sampling_rate=SAMPLE_RATE, return_tensors="pt").input_features
    tokens = torch.from_numpy(rng.integers(0, model.config.vocab_size, [1, TOKENS]))
    with torch.no_grad():
        encoded = model.model.encoder(features).last_hidden_state
        output = model(features, decoder_input_ids=tokens, output_attentions=True)
    heads = model.generation_config.alignment_heads
    attentions = torch.stack([output.cross_attentions[layer][0, head] for layer, head in heads])
    arrays = {
        "samples": torch.from_numpy(samples),
        "features": features[0],
        "encoded": encoded[0],
        "token_ids": tokens[0].to(torch.int32),
        "logits": output.logits[0],
        "attentions": attentions,
    }
    path = parent / f"{checkpoint.name}.arrays.safetensors"
    save_file({name: array.contiguous() for name, array in arrays.items()}, path)
    path.chmod(0o644)
