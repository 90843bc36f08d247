"""Loading a model of any family onto the device."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import tensorflow as tf

from shaperouter_service.checkpoints.number_types import NUMBER_BYTES, DType
from shaperouter_service.checkpoints.safetensors_reader import Checkpoint
from shaperouter_service.errors import StartupError
from shaperouter_service.models.bart import Bart, MBart
from shaperouter_service.models.config import Config
from shaperouter_service.models.defaults import (
    read_decoder_start,
    read_default_lengths,
    read_default_options,
)
from shaperouter_service.models.family import EncoderDecoder, Family
from shaperouter_service.models.gemma import Gemma2, Gemma3, Gemma3Text
from shaperouter_service.models.gpt2 import GPT2
from shaperouter_service.models.llama import Llama
from shaperouter_service.models.m2m100 import M2M100
from shaperouter_service.models.marian import Marian
from shaperouter_service.models.mistral import Ministral, Mistral
from shaperouter_service.models.opt import OPT
from shaperouter_service.models.pegasus import Pegasus
from shaperouter_service.models.phi3 import Phi3
from shaperouter_service.models.qwen import Qwen2, Qwen3
from shaperouter_service.models.smollm3 import SmolLM3
from shaperouter_service.models.t5 import MT5, T5
from shaperouter_service.models.transcripts import Transcripts, read_transcripts
from shaperouter_service.models.weight_loading import (
    StartReading,
    load_weights,
    read_now,
    warn_of_unused,
)
from shaperouter_service.models.weight_memory import packed_type
from shaperouter_service.models.weights import DeviceKind, Role, Weights
from shaperouter_service.models.whisper import Whisper
from shaperouter_service.system.populated_memory import PopulatedMemory

FAMILIES: Mapping[str, type[Family]] = {
    family.name: family
    for family in (
        GPT2,
        OPT,
        Llama,
        Qwen2,
        Qwen3,
        Mistral,
        Ministral,
        Gemma2,
        Gemma3Text,
        Gemma3,
        Phi3,
        SmolLM3,
        T5,
        MT5,
        Bart,
        MBart,
        Marian,
        Pegasus,
        M2M100,
        Whisper,
    )
}

# Type of caches that hold the bits of bfloat16 numbers.
NARROW_CACHES = tf.uint16
# Types that only the native kernels compute with.
_PACKED_DTYPES: Sequence[DType] = ("int8", "int4")


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model in memory.

    Attributes:
        name: As requests call it.
        family: Its dimensions and forward pass.
        weights: Variables on the device; never written after loading.
        dtype: Type of most computations.
        cache_dtype: Type of caches; uint16 has the bits of bfloat16 numbers.
        weight_dtype: Type that matrices are stored in.
        parameters: Number of parameters, without those of the draft model.
        weight_bytes: Memory of the weights.
        encoder_weight_bytes: The part of that memory that only an encoder reads.
        decoder_start_token_id: First token of a decoder's prompt; None without an encoder.
        default_options: Default options of requests; every option that has a default.
        default_max_length: Default maximum tokens of a decoder's whole sequence; 0 for none. It
            stands for the default `max_new_tokens`, which it is after a prompt of one token.
        default_min_length: The same as a minimum.
        transcripts: How it makes transcripts, if it does.
        draft: Dimensions and forward pass of its draft model, whose weights are among `weights`;
            None without one.
    """

    name: str
    family: Family
    weights: Weights
    dtype: tf.DType
    cache_dtype: tf.DType
    weight_dtype: tf.DType
    parameters: int
    weight_bytes: int
    encoder_weight_bytes: int
    decoder_start_token_id: int | None
    default_options: Mapping[str, Any]
    default_max_length: int = 0
    default_min_length: int = 0
    transcripts: Transcripts | None = None
    draft: Family | None = None

    @property
    def cached(self) -> Sequence[Family]:
        """The families whose keys and values the caches hold, in the order of the caches."""
        return [self.family] if self.draft is None else [self.family, self.draft]

    @property
    def kv_cache_bytes_per_token(self) -> int:
        """Memory of one position of the caches: keys and values of all layers."""
        numbers = sum(each.layers * each.heads * each.head_size for each in self.cached)
        return 2 * numbers * self.cache_dtype.size


def resolve_dtype(choice: Literal["auto"] | DType, *, packed: bool) -> DType:
    """Chooses a type for `auto`, bfloat16 on a GPU and float32 elsewhere, or checks the choice.

    Args:
        choice: The configured type.
        packed: Whether weights can be packed for the native kernels.

    Raises:
        StartupError: This machine can't compute with that type.
    """
    if choice in _PACKED_DTYPES and not packed:
        raise StartupError(
            f"dtype {choice} needs a CPU with the native kernels, which are not in use here; use "
            "float32 or bfloat16"
        )
    if choice != "auto":
        return choice
    return "bfloat16" if DeviceKind.present() is DeviceKind.GPU else "float32"


def resolve_cache_dtype(
    choice: Literal["auto", "float32", "bfloat16"], dtype: DType, *, packed: bool
) -> tf.DType:
    """Chooses the type of caches.

    With packed weights, `auto` is float32 for weights in float32 and bfloat16 for those of fewer
    bits; otherwise it is the type of most computations.

    Args:
        choice: The configured type.
        dtype: Type of the weights; see `resolve_dtype`.
        packed: Whether weights are packed for the native kernels.

    Raises:
        StartupError: This machine can't have caches of that type.
    """
    if packed:
        narrow = choice == "bfloat16" or (choice == "auto" and dtype != "float32")
        return NARROW_CACHES if narrow else tf.float32
    computing = tf.as_dtype(dtype)
    if choice in ("auto", computing.name):
        return computing
    raise StartupError(
        f"kv-cache-dtype {choice} needs a CPU with the native kernels, which are not in use here; "
        f"use auto, which is {computing.name}"
    )


def read_family(checkpoint: Checkpoint) -> Family:
    """Reads the family and the dimensions of a checkpoint's model from its config.json.

    Raises:
        StartupError: The model is of an unsupported family or has a head that does not generate,
            a value is unusable, or tensors that should be equal are not.
    """
    config = Config(checkpoint.directory / "config.json", checkpoint.config)
    model_type = str(checkpoint.config.get("model_type"))
    if model_type not in FAMILIES:
        raise config.error(f"model_type must be one of {', '.join(FAMILIES)}, got {model_type!r}")
    if (quantized := checkpoint.config.get("quantization_config")) is not None:
        method = quantized.get("quant_method") if isinstance(quantized, dict) else quantized
        raise config.error(
            f"quantization_config must be absent, got {method!r}: serve the checkpoint that it was "
            "made from, with --dtype int8 or int4"
        )
    kind = FAMILIES[model_type]
    # Checkpoints that were not saved by Transformers may name no architecture.
    named = checkpoint.config.get("architectures") or [kind.architectures[0]]
    if not isinstance(named, list) or not set(map(str, named)) & set(kind.architectures):
        raise config.error(
            f"architectures must name one of {', '.join(kind.architectures)}, got {named!r}: "
            "a model with another head cannot generate"
        )
    family = kind.from_config(config.with_own_names(kind.other_names))
    _check_tied(config, checkpoint, family)
    return family


def _check_tied(config: Config, checkpoint: Checkpoint, family: Family) -> None:
    """Refuses tensors that differ though config.json ties them, which Transformers does not tie."""
    copies = sorted(name for name in checkpoint.names if name.endswith(tuple(family.tied)))
    for name in copies[1:]:
        if not checkpoint.are_equal(copies[0], name):
            raise config.error(
                f"tie_word_embeddings must be false for {copies[0]} and {name}, which differ, got "
                "True"
            )


def read_draft(checkpoint: Checkpoint, model: str, family: Family) -> Family:
    """Reads the family and the dimensions of a draft model; see `read_family`.

    Args:
        checkpoint: The draft model's checkpoint.
        model: Name of the model that it proposes for.
        family: That model.

    Raises:
        StartupError: See `read_family`; or the draft model cannot propose for the model.
    """
    draft = read_family(checkpoint)
    directory = checkpoint.directory
    for name, each in ((f"model {model}", family), (str(directory), draft)):
        if each.max_source_length:
            raise StartupError(
                f"draft of model {model}: needs models without an encoder, but {name} is of the "
                f"family {each.name}"
            )
    if draft.max_length < family.max_length:
        raise StartupError(
            f"draft of model {model}: must take sequences as long as the model does, which are "
            f"{family.max_length} tokens; {directory} takes {draft.max_length}, so use "
            f"--max-length {draft.max_length}"
        )
    return draft


class Part(Protocol):
    """A model, or a part of it, that reads weights."""

    @property
    def roles(self) -> Mapping[str, Role]:
        """See `Family`."""

    def read_weights(
        self, checkpoint: Checkpoint, dtype: np.dtype[Any]
    ) -> Iterable[tuple[str, np.ndarray[Any, Any]]]:
        """See `Family`."""


def weight_bytes(checkpoint: Checkpoint, part: Part, dtype: DType, *, packed: bool) -> int:
    """Estimates the memory of weights, without padding and the scales of columns.

    Args:
        checkpoint: The checkpoint, opened with `only_headers`.
        part: What reads the weights.
        dtype: Type to store the weights in.
        packed: Pack matrices for the native kernels.

    Raises:
        StartupError: See `load_model`.
    """
    size = 0.0
    for weight, array in part.read_weights(checkpoint, np.dtype(np.float32)):
        role = part.roles.get(weight, Role.LINEAR)
        held = dtype
        if packed and (array.ndim != 2 or role is Role.UNPACKED):
            held = "float32"
        elif packed:
            held = packed_type(tf.as_dtype(dtype), role).name
        size += array.size * NUMBER_BYTES[held]
    return math.ceil(size)


def unused_tensors(checkpoint: Checkpoint, family: Family) -> list[str]:
    """Returns the names of tensors that carry information but that no weight was read from."""
    return sorted(name for name in checkpoint.unread if not family.redundant.fullmatch(name))


def load_model(
    name: str,
    directory: Path,
    dtype: DType,
    *,
    packed: bool = False,
    cache_dtype: tf.DType | None = None,
    max_length: int | None = None,
    start_reading: StartReading = read_now,
    draft: Path | None = None,
    populated: PopulatedMemory | None = None,
) -> Model:
    """Reads a checkpoint onto the device.

    Args:
        name: As requests will call the model.
        directory: A model directory in the Hugging Face layout.
        dtype: Type to store the weights in, whatever type the checkpoint has. With the native
            kernels it applies only to matrices, and everything else is stored and computed in
            float32; otherwise it applies to everything.
        packed: Pack matrices for the native kernels.
        cache_dtype: See `Model`; None for the type of most computations.
        max_length: Limit of the tokens of a sequence; None for as many as the model has.
        start_reading: When packed weights are read; see `load_weights`.
        draft: Directory of its draft model; None for none. Needs `packed`.
        populated: Memory to use first for the weights, but not for those of the draft model.

    Raises:
        StartupError: A directory lacks a file or a tensor, a tensor has a wrong shape, a value of
            a configuration is unusable, the architecture is unknown, or the draft model cannot
            propose for the model.
    """
    checkpoint = Checkpoint(directory, only_headers=True)
    family = read_family(checkpoint).limited(max_length)
    default_options = read_default_options(checkpoint, family)
    max_sequence, min_sequence = read_default_lengths(checkpoint, family)
    transcripts = read_transcripts(checkpoint, family) if isinstance(family, Whisper) else None
    loaded = load_weights(
        name,
        checkpoint,
        family,
        family.read_weights,
        tf.as_dtype(dtype),
        packed=packed,
        start_reading=start_reading,
        populated=populated,
    )
    warn_of_unused(name, unused_tensors(checkpoint, family))
    weights, sizes = loaded.weights, loaded.sizes
    draft_family = None
    if draft is not None:
        of_draft = Checkpoint(draft, only_headers=True)
        draft_family = read_draft(of_draft, name, family)
        loaded_draft = load_weights(
            f"draft of {name}",
            of_draft,
            draft_family,
            draft_family.read_weights,
            tf.as_dtype(dtype),
            packed=packed,
            start_reading=start_reading,
        )
        warn_of_unused(f"draft of {name}", unused_tensors(of_draft, draft_family))
        weights = weights.with_draft(loaded_draft.weights)
        sizes |= {Weights.DRAFT + weight: size for weight, size in loaded_draft.sizes.items()}
    of_encoder = 0
    if isinstance(family, EncoderDecoder):
        of_encoder = sum(
            size
            for weight, size in sizes.items()
            if family.is_of_encoder(weight.removesuffix(Weights.SCALES))
        )
    return Model(
        name=name,
        family=family,
        weights=weights,
        draft=draft_family,
        dtype=loaded.dtype,
        cache_dtype=loaded.dtype if cache_dtype is None else cache_dtype,
        weight_dtype=loaded.weight_dtype,
        parameters=loaded.parameters,
        weight_bytes=sum(sizes.values()),
        encoder_weight_bytes=of_encoder,
        decoder_start_token_id=read_decoder_start(checkpoint, family),
        default_options=default_options,
        default_max_length=max_sequence,
        default_min_length=min_sequence,
        transcripts=transcripts,
    )
