"""Model families as functional TensorFlow, one file each, with shared layers and loading.

Letters in shapes, here and in `decoding`:
R rows, B beams, S source length, H heads, D head size, E width, T cache length, P prompt length,
V vocabulary, L layers.
"""

from shaperouter_service.checkpoints.number_types import DType
from shaperouter_service.checkpoints.safetensors_reader import Checkpoint
from shaperouter_service.models.defaults import read_decoder_start, read_default_options
from shaperouter_service.models.family import EncoderDecoder, Family
from shaperouter_service.models.loading import (
    NARROW_CACHES,
    Model,
    load_model,
    read_draft,
    read_family,
    resolve_cache_dtype,
    resolve_dtype,
    unused_tensors,
)
from shaperouter_service.models.transcripts import Transcripts, read_transcripts
from shaperouter_service.models.weights import DeviceKind, Role, Weights
from shaperouter_service.models.whisper import Whisper

__all__ = [
    "NARROW_CACHES",
    "Checkpoint",
    "DType",
    "DeviceKind",
    "EncoderDecoder",
    "Family",
    "Model",
    "Role",
    "Transcripts",
    "Weights",
    "Whisper",
    "load_model",
    "read_decoder_start",
    "read_default_options",
    "read_draft",
    "read_family",
    "read_transcripts",
    "resolve_cache_dtype",
    "resolve_dtype",
    "unused_tensors",
]
