"""Served models and their limits."""

import enum
from dataclasses import dataclass

from shaperouter._options import GenerationOptions


class ModelKind(enum.StrEnum):
    """What a model does with what it is given."""

    DECODER = "decoder"  # continues a prompt
    ENCODER_DECODER = "encoder-decoder"  # answers a source
    TRANSCRIBER = "transcriber"  # writes down what is said in a recording
    UNKNOWN = "unknown"  # a kind that this version of the client does not know


@dataclass(frozen=True, kw_only=True)
class LaneLadders:
    """The ladders of one beam width.

    Attributes:
        beams: The beam width; 1 is no beam search.
        decode_rows: Requests decoded together.
        decode_lengths: Lengths of the attended cache in tokens.
    """

    beams: int
    decode_rows: tuple[int, ...]
    decode_lengths: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Ladders:
    """The allowed values of the dimensions of a model's graphs, each ascending.

    Attributes:
        prefill_lengths: Padded lengths of prompts in tokens.
        lanes: Of each beam width, in order of width.
        prefill_rows: Prompts read together, as far as `prefill_batch_tokens` allows.
        prefill_batch_tokens: Most padded tokens of a prefill of several prompts.
        encode_lengths: Padded lengths of sources in tokens; empty without an encoder.
        encode_rows: Sources read together, as far as `encode_batch_tokens` allows.
        encode_batch_tokens: Most padded tokens of an encode of several sources.
        align_lengths: Padded lengths of transcripts that are aligned, in tokens; empty of models
            that make none.
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
        tokenizer: Class of the tokenizer.
        vocab_size: Number of token ids.
        max_length: Most tokens of prompt and generation together; of the decoder's, if there is an
            encoder.
        default_options: What requests get that do not say otherwise; every option that has a
            default.
        dtype: Type of the caches and of most computations, such as ``float32``.
        parameters: Number of parameters.
        weight_bytes: Memory of the weights on one device, in bytes.
        kv_cache_bytes: Memory of the key/value caches on one device, in bytes; of the beam widths
            in use so far.
        slots: Requests without beam search that one worker runs at a time; more wait.
        ladders: Shapes its graphs can have.
        ready_workers: Workers that can run it now.
        kind: What it does with a prompt.
        max_source_length: Most tokens of a source, or places of a window; 0 without an encoder.
        languages: Codes of the languages that a transcriber knows; empty if it is English-only.
        window_seconds: Of a recording, what a transcriber hears at a time; 0 of other models.
        weight_dtype: Type the weights are held in, such as ``int8``.
        kernels: Instruction set of the native kernels that multiply by the weights, such as
            ``avx512``; empty where XLA multiplies.
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
