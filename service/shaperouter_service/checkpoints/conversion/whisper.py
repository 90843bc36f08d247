"""Conversion of Whisper from CTranslate2 to Transformers' `WhisperForConditionalGeneration`."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from shaperouter_service.checkpoints.conversion.ctranslate2 import Weights
from shaperouter_service.checkpoints.conversion.special_tokens import SpecialTokens
from shaperouter_service.errors import StartupError

# The only layout of Whisper since CTranslate2 supports timestamps of words.
KIND, REVISION = "WhisperSpec", 3

# Values that CTranslate2 writes for every Whisper.
GELU = 3
FIXED = {"decoder/activation": GELU, "decoder/pre_norm": 1, "decoder/scale_embeddings": 0}

# Vocabulary of English-only models; multilingual ones have more.
ENGLISH_VOCAB_SIZE = 51864
# Maximum first timestamp of a transcript: 1 s in steps of 0.02 s.
MAX_INITIAL_TIMESTAMP_INDEX = 50

# Transformers' names of norms and layers, by CTranslate2's.
_NORM = {"weight": "gamma", "bias": "beta"}
_LINEAR = {"weight": "weight", "bias": "bias"}


def check_layout(weights: Weights) -> None:
    """Checks that the weights are Whisper in the expected layout.

    Raises:
        StartupError: They are not.
    """
    if (weights.kind, weights.revision) != (KIND, REVISION):
        raise StartupError(
            f"{weights.path}: must be a {KIND} of revision {REVISION}, got {weights.kind} of "
            f"revision {weights.revision}"
        )
    for name, value in FIXED.items():
        if weights.scalar(name) != value:
            raise StartupError(
                f"{weights.path}: {name} must be {value}, got {weights.scalar(name)}"
            )


def tensors(weights: Weights) -> Iterator[tuple[str, np.ndarray]]:
    """Yields every tensor by the name that Transformers gives it.

    Raises:
        StartupError: A tensor is missing.
    """
    layers = weights.layers
    for name in ("conv1", "conv2"):
        yield from _copy(weights, f"encoder/{name}", f"model.encoder.{name}", _LINEAR)
    yield "model.decoder.embed_tokens.weight", weights.tensor("decoder/embeddings/weight")
    for part in ("encoder", "decoder"):
        target = f"model.{part}"
        yield (
            f"{target}.embed_positions.weight",
            weights.tensor(f"{part}/position_encodings/encodings"),
        )
        yield from _copy(weights, f"{part}/layer_norm", f"{target}.layer_norm", _NORM)
        for layer in range(layers.get(part, 0)):
            yield from _layer(weights, f"{part}/layer_{layer}", f"{target}.layers.{layer}", part)
    if not _is_tied(weights):
        yield "proj_out.weight", weights.tensor("decoder/projection/weight")


def config(weights: Weights, special: SpecialTokens) -> dict[str, Any]:
    """The content of config.json."""
    conv = weights.tensor("encoder/conv1/weight")
    vocab_size, width = weights.tensor("decoder/embeddings/weight").shape
    layers = weights.layers
    heads = {part: weights.scalar(f"{part}/num_heads") for part in ("encoder", "decoder")}
    inner = {part: len(weights.tensor(f"{part}/layer_0/ffn/linear_0/bias")) for part in heads}
    positions = {
        part: len(weights.tensor(f"{part}/position_encodings/encodings")) for part in heads
    }
    return {
        "architectures": ["WhisperForConditionalGeneration"],
        "model_type": "whisper",
        "activation_function": "gelu",
        "d_model": width,
        "decoder_attention_heads": heads["decoder"],
        "decoder_ffn_dim": inner["decoder"],
        "decoder_layers": layers["decoder"],
        "encoder_attention_heads": heads["encoder"],
        "encoder_ffn_dim": inner["encoder"],
        "encoder_layers": layers["encoder"],
        "is_encoder_decoder": True,
        "max_source_positions": positions["encoder"],
        "max_target_positions": positions["decoder"],
        "num_mel_bins": conv.shape[1],
        "scale_embedding": False,
        "tie_word_embeddings": _is_tied(weights),
        "vocab_size": vocab_size,
        **_token_ids(special),
    }


def generation_config(
    weights: Weights, special: SpecialTokens, source: Mapping[str, Any]
) -> dict[str, Any]:
    """The content of generation_config.json.

    Args:
        weights: Weights of the model.
        special: Special tokens of its tokenizer.
        source: The content of CTranslate2's config.json.
    """
    vocab_size = len(weights.tensor("decoder/embeddings/weight"))
    multilingual = vocab_size > ENGLISH_VOCAB_SIZE
    content: dict[str, Any] = {
        **_token_ids(special),
        "alignment_heads": source.get("alignment_heads"),
        "begin_suppress_tokens": source.get("suppress_ids_begin"),
        "is_multilingual": multilingual,
        "max_initial_timestamp_index": MAX_INITIAL_TIMESTAMP_INDEX,
        "max_length": len(weights.tensor("decoder/position_encodings/encodings")),
        "no_timestamps_token_id": special.no_timestamps,
        "prev_sot_token_id": special.previous,
        "return_timestamps": False,
        "suppress_tokens": source.get("suppress_ids"),
    }
    if multilingual:
        content |= {
            "lang_to_id": dict(special.languages),
            "task_to_id": {"transcribe": special.transcribe, "translate": special.translate},
        }
    return content


def preprocessor_config(weights: Weights) -> dict[str, Any]:
    """The content of preprocessor_config.json; only the number of features varies."""
    return {
        "chunk_length": 30,
        "feature_extractor_type": "WhisperFeatureExtractor",
        "feature_size": weights.tensor("encoder/conv1/weight").shape[1],
        "hop_length": 160,
        "n_fft": 400,
        "padding_side": "right",
        "padding_value": 0.0,
        "processor_class": "WhisperProcessor",
        "return_attention_mask": False,
        "sampling_rate": 16000,
    }


def tokenizer_config(special: SpecialTokens) -> dict[str, Any]:
    """The content of tokenizer_config.json; Transformers puts timestamps after the last token."""
    end = special.texts[0]
    return {
        "additional_special_tokens": special.texts,
        "bos_token": end,
        "eos_token": end,
        "pad_token": end,
        "tokenizer_class": "WhisperTokenizer",
        "unk_token": end,
    }


def _layer(
    weights: Weights, source: str, target: str, part: str
) -> Iterator[tuple[str, np.ndarray]]:
    yield from _copy(
        weights, f"{source}/self_attention/layer_norm", f"{target}.self_attn_layer_norm", _NORM
    )
    attention, names = f"{source}/self_attention", f"{target}.self_attn"
    yield from _split(weights, f"{attention}/linear_0", names, ("q_proj", "k_proj", "v_proj"))
    yield from _copy(weights, f"{attention}/linear_1", f"{names}.out_proj", _LINEAR)
    if part == "decoder":
        attention, names = f"{source}/attention", f"{target}.encoder_attn"
        yield from _copy(weights, f"{attention}/layer_norm", f"{names}_layer_norm", _NORM)
        yield from _split(weights, f"{attention}/linear_0", names, ("q_proj",))
        yield from _split(weights, f"{attention}/linear_1", names, ("k_proj", "v_proj"))
        yield from _copy(weights, f"{attention}/linear_2", f"{names}.out_proj", _LINEAR)
    yield from _copy(weights, f"{source}/ffn/layer_norm", f"{target}.final_layer_norm", _NORM)
    for layer, name in (("linear_0", "fc1"), ("linear_1", "fc2")):
        yield from _copy(weights, f"{source}/ffn/{layer}", f"{target}.{name}", _LINEAR)


def _split(
    weights: Weights, source: str, target: str, names: tuple[str, ...]
) -> Iterator[tuple[str, np.ndarray]]:
    """Splits projections that CTranslate2 stacks into one."""
    for kind in ("weight", "bias"):
        stacked = weights.tensor(f"{source}/{kind}")
        for name, tensor in zip(names, np.split(stacked, len(names)), strict=True):
            # Keys have no bias: CTranslate2 fills it with zeros.
            if (kind, name) != ("bias", "k_proj"):
                yield f"{target}.{name}.{kind}", np.ascontiguousarray(tensor)


def _copy(
    weights: Weights, source: str, target: str, names: Mapping[str, str]
) -> Iterator[tuple[str, np.ndarray]]:
    for name, stored in names.items():
        yield f"{target}.{name}", weights.tensor(f"{source}/{stored}")


def _is_tied(weights: Weights) -> bool:
    return weights.aliases.get("decoder/projection/weight") == "decoder/embeddings/weight"


def _token_ids(special: SpecialTokens) -> dict[str, int]:
    return {
        "bos_token_id": special.end,
        "decoder_start_token_id": special.start,
        "eos_token_id": special.end,
        "pad_token_id": special.end,
    }
