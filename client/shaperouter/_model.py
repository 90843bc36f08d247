"""Served models and their limits."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from shaperouter._options import GenerationOptions


class ModelKind(enum.StrEnum):
    """What a model does with its input."""

    DECODER = "decoder"  # continues a prompt
    ENCODER_DECODER = "encoder-decoder"  # answers a source
    TRANSCRIBER = "transcriber"  # transcribes a recording
    EMBEDDER = "embedder"  # answers a text with an embedding
    CLASSIFIER = "classifier"  # answers a text, or a pair of texts, with scores
    FUNCTION = "function"  # computes tensors from tensors
    UNKNOWN = "unknown"  # a kind that this version of the client does not know


class DataType(enum.StrEnum):
    """Data type of a tensor's elements, by its name in the Open Inference Protocol."""

    BOOL = "BOOL"
    UINT8 = "UINT8"
    UINT16 = "UINT16"
    UINT32 = "UINT32"
    UINT64 = "UINT64"
    INT8 = "INT8"
    INT16 = "INT16"
    INT32 = "INT32"
    INT64 = "INT64"
    FP16 = "FP16"
    BF16 = "BF16"
    FP32 = "FP32"
    FP64 = "FP64"
    BYTES = "BYTES"
    UNKNOWN = "unknown"  # a type that this version of the client does not know


@dataclass(frozen=True, kw_only=True)
class TensorSpec:
    """A tensor that a model takes or gives.

    Attributes:
        name: Its name.
        dtype: Data type of its elements.
        shape: Size of each dimension; None where the size differs between calls.
    """

    name: str
    dtype: DataType
    shape: tuple[int | None, ...]


@dataclass(frozen=True, kw_only=True)
class Axis:
    """A size that differs between calls.

    Attributes:
        name: Its name, such as ``batch`` or ``length``.
        inputs: The dimension of each input that has this size, by the input's name.
        outputs: The dimension of each output that has this size, by the output's name.
        ladder: The sizes that graphs can have, ascending; a call is padded to the first that covers
            it. Empty if padding would change answers: each size then has a graph of its own.
    """

    name: str
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]
    ladder: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class CallSpec:
    """How a model that answers once is called.

    Attributes:
        inputs: The tensors that it takes.
        outputs: The tensors that it gives.
        batch: The axis along which calls are joined; None if it has none.
        axes: The other axes.
        compiled: Whether XLA compiles it.
        labels: Names of the classes, in the order of the scores; empty if it has no names for them.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    batch: Axis | None
    axes: tuple[Axis, ...]
    compiled: bool
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class LaneLadders:
    """The ladders of one beam width.

    Attributes:
        beams: The beam width; 1 means no beam search.
        decode_rows: How many requests are decoded together.
        decode_lengths: Lengths of the attended cache in tokens.
    """

    beams: int
    decode_rows: tuple[int, ...]
    decode_lengths: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Ladders:
    """The allowed values of each dimension of a model's graphs, in ascending order.

    Attributes:
        prefill_lengths: Padded lengths of prompts in tokens.
        lanes: One entry for each beam width, ordered by width.
        prefill_rows: How many prompts are read together, up to `prefill_batch_tokens`.
        prefill_batch_tokens: Maximum padded tokens of a prefill of several prompts.
        encode_lengths: Padded lengths of sources in tokens; empty without an encoder.
        encode_rows: How many sources are read together, up to `encode_batch_tokens`.
        encode_batch_tokens: Maximum padded tokens of an encode of several sources.
        align_lengths: Padded lengths of transcripts to align, in tokens; empty for models that make
            no transcripts.
    """

    prefill_lengths: tuple[int, ...]
    lanes: tuple[LaneLadders, ...]
    prefill_rows: tuple[int, ...]
    prefill_batch_tokens: int
    encode_lengths: tuple[int, ...] = ()
    encode_rows: tuple[int, ...] = ()
    encode_batch_tokens: int = 0
    align_lengths: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Model:
    """A served model and its limits.

    Attributes:
        name: Name that requests use.
        family: Family of the architecture, such as ``gpt2``.
        tokenizer: Class of the tokenizer; its algorithm, such as ``BPE``, if it has no class of its
            own.
        vocab_size: Size of the vocabulary, in tokens.
        max_length: Maximum tokens of prompt and generated text together; of the decoder if there is
            an encoder. Of a text encoder, maximum tokens of a text; 0 for a function.
        default_options: The defaults of all options that have one.
        dtype: Data type of the caches and of most computations, such as ``float32``.
        parameters: Number of parameters.
        weight_bytes: Memory of the weights on one device, in bytes.
        kv_cache_bytes: Memory of the key/value caches of the requests that run now, on one device,
            in bytes.
        slots: Number of requests without beam search that one worker runs at a time; more requests
            wait.
        ladders: The shapes that its graphs can have; empty for a model that answers once.
        call: How it is called, for a function or a text encoder; None for other models.
        ready_workers: Number of workers that are ready to serve it; while it is 0, the service is
            not ready.
        kind: What it does with its input.
        max_source_length: Maximum tokens of a source, or positions of a window; 0 without an
            encoder.
        languages: Codes of the languages that a transcriber knows; empty if it is English-only.
        window_seconds: Length of a transcriber's window, in seconds; 0 for other models.
        weight_dtype: Data type of the weight matrices, such as ``int8``.
        kernels: Instruction set of the native kernels that compute matrix products, such as
            ``avx512``; empty if XLA computes them.
        kv_cache_bytes_per_token: Memory of one position of the key/value caches, in bytes: a token
            of the prompt, the generated text or the source.
        characters_per_token: Maximum characters of a text per token that it may have. A longer text
            is refused without tokenizing it. 0 without a tokenizer.
        revision: Identifies the files that it was loaded from: a SHA-256, as hexadecimal digits.
            Of several, the revision with the largest share of the requests.
        targets: The share of the requests that each revision gets, by name and the first 12 digits,
            as ``gpt2@0123456789ab``; or by model, if the name is an alias.
    """

    name: str
    family: str
    tokenizer: str
    vocab_size: int
    max_length: int
    default_options: GenerationOptions
    dtype: str
    parameters: int
    weight_bytes: int
    kv_cache_bytes: int
    slots: int
    ladders: Ladders
    ready_workers: int
    kind: ModelKind = ModelKind.UNKNOWN
    max_source_length: int = 0
    languages: tuple[str, ...] = ()
    window_seconds: float = 0.0
    weight_dtype: str = ""
    kernels: str = ""
    kv_cache_bytes_per_token: int = 0
    characters_per_token: int = 0
    call: CallSpec | None = None
    revision: str = ""
    targets: Mapping[str, float] = field(default_factory=dict)
