"""Loading a model of any family onto the device."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from shaperouter.v1 import generation_pb2
from shaperouter_service.models.checkpoint import Checkpoint, aligned
from shaperouter_service.models.config import Config
from shaperouter_service.models.defaults import read_decoder_start, read_default_options
from shaperouter_service.models.family import EncoderDecoder, Family
from shaperouter_service.models.gpt2 import GPT2
from shaperouter_service.models.opt import OPT
from shaperouter_service.models.t5 import MT5, T5
from shaperouter_service.models.transcripts import Transcripts, read_transcripts
from shaperouter_service.models.weights import DeviceKind, Weights
from shaperouter_service.models.whisper import Whisper

FAMILIES: Mapping[str, type[Family]] = {
    family.name: family for family in (GPT2, OPT, T5, MT5, Whisper)
}

DType = Literal["float32", "bfloat16"]


@dataclass(frozen=True, kw_only=True)
class Outline:
    """What there is to know of a model without its weights; can be sent to a process.

    Attributes:
        name: As requests call the model.
        family: Its dimensions and forward pass.
        dtype: Type of the weights and caches.
        weights: Their shapes and types by name.
    """

    name: str
    family: Family
    dtype: tf.DType
    weights: Mapping[str, tf.TensorSpec]


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model in memory.

    Attributes:
        name: As requests call it.
        family: Its dimensions and forward pass.
        weights: Variables on the device; never written after loading.
        dtype: Type of the weights and caches, and of most computations.
        parameters: Number of parameters.
        weight_bytes: Memory of the weights.
        encoder_weight_bytes: Of that, memory of weights that only an encoder reads.
        decoder_start_token_id: What a decoder's prompt begins with; None without an encoder.
        default_options: What requests get that don't say otherwise; every option that has a
            default.
        transcripts: How it makes transcripts, if it does.
    """

    name: str
    family: Family
    weights: Weights
    dtype: tf.DType
    parameters: int
    weight_bytes: int
    encoder_weight_bytes: int
    decoder_start_token_id: int | None
    default_options: generation_pb2.GenerationOptions
    transcripts: Transcripts | None = None

    @property
    def kv_cache_bytes_per_token(self) -> int:
        """Memory of one place of the caches: keys and values of every layer."""
        family = self.family
        return 2 * family.layers * family.heads * family.head_size * self.dtype.size

    @property
    def outline(self) -> Outline:
        """The same without weights."""
        return Outline(
            name=self.name,
            family=self.family,
            dtype=self.dtype,
            weights={
                name: tf.TensorSpec(weight.shape, weight.dtype)
                for name, weight in self.weights.items()
            },
        )


def resolve_dtype(choice: Literal["auto"] | DType) -> DType:
    """Chooses a type for `auto`: bfloat16 on a GPU, float32 elsewhere.

    XLA on CPU converts shorter types before each product, which costs several times the product.
    """
    if choice != "auto":
        return choice
    return "bfloat16" if DeviceKind.present() is DeviceKind.GPU else "float32"


def load_model(name: str, directory: Path, dtype: DType) -> Model:
    """Reads a checkpoint onto the device.

    Args:
        name: As requests will call the model.
        directory: A model directory in the Hugging Face layout.
        dtype: Type to hold the weights in, whatever type the checkpoint has.

    Raises:
        StartupError: The directory lacks a file or a tensor, a tensor has a wrong shape, a value of
            a configuration is unusable, or the architecture is not known.
    """
    # Nothing is drawn where standard error is no terminal.
    with tqdm(
        desc=name, unit="B", unit_scale=True, leave=False, disable=None, file=sys.stderr
    ) as progress:
        checkpoint = Checkpoint(directory, on_read=progress.update)
        progress.total = checkpoint.file_bytes
        config = Config(directory / "config.json", checkpoint.config)
        model_type = str(checkpoint.config.get("model_type"))
        if model_type not in FAMILIES:
            raise config.error(
                f"model_type must be one of {', '.join(FAMILIES)}, got {model_type!r}"
            )
        family = FAMILIES[model_type].from_config(config)
        default_options = read_default_options(checkpoint, family)
        transcripts = read_transcripts(checkpoint, family) if isinstance(family, Whisper) else None
        tf_dtype = tf.as_dtype(dtype)
        weights = {
            weight_name: _variable(weight_name, array)
            for weight_name, array in family.read_weights(
                checkpoint, np.dtype(tf_dtype.as_numpy_dtype)
            )
        }
    sizes = {name: variable.shape.num_elements() for name, variable in weights.items()}
    parameters = sum(sizes.values())
    of_encoder = 0
    if isinstance(family, EncoderDecoder):
        of_encoder = sum(size for name, size in sizes.items() if family.is_of_encoder(name))
    return Model(
        name=name,
        family=family,
        weights=Weights(weights, DeviceKind.present()),
        dtype=tf_dtype,
        parameters=parameters,
        weight_bytes=parameters * tf_dtype.size,
        encoder_weight_bytes=of_encoder * tf_dtype.size,
        decoder_start_token_id=read_decoder_start(checkpoint, family),
        default_options=default_options,
        transcripts=transcripts,
    )


def make_hollow(outline: Outline) -> Model:
    """A model to trace and not to run: its weights have shapes, but neither values nor memory.

    Memory that nobody has written to takes none, and nothing that traces reads weights. It is for a
    CPU. What loading finds out for requests, it has not: defaults, what is of the encoder,
    how transcripts are made.
    """
    weights = {
        name: _variable(name, aligned(tuple(spec.shape), np.dtype(spec.dtype.as_numpy_dtype)))
        for name, spec in outline.weights.items()
    }
    parameters = sum(spec.shape.num_elements() for spec in outline.weights.values())
    return Model(
        name=outline.name,
        family=outline.family,
        weights=Weights(weights, DeviceKind.CPU),
        dtype=outline.dtype,
        parameters=parameters,
        weight_bytes=parameters * outline.dtype.size,
        encoder_weight_bytes=0,
        decoder_start_token_id=None,
        default_options=generation_pb2.GenerationOptions(),
    )


def _variable(name: str, array: np.ndarray) -> tf.Variable:
    """A variable that takes the array's memory over, where the device is the CPU.

    `tf.Variable(array)` would copy it, and for a moment hold it three times.
    """
    # NumPy's DLPack knows no bfloat16: its bits travel as integers.
    is_bfloat16 = array.dtype == tf.bfloat16.as_numpy_dtype
    tensor = tf.experimental.dlpack.from_dlpack(
        (array.view(np.uint16) if is_bfloat16 else array).__dlpack__()
    )
    if is_bfloat16:
        tensor = tf.bitcast(tensor, tf.bfloat16)
    return tf.Variable(tensor, trainable=False, name=name)
