"""Served models and their limits."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Ladders:
    """The allowed values of the dimensions of a model's graphs, each ascending.

    Attributes:
        prefill_lengths: Padded lengths of prompts in tokens.
        decode_lengths: Lengths of the attended cache in tokens.
        decode_rows: Sequences decoded together.
        beams: Beam widths.
    """

    prefill_lengths: tuple[int, ...]
    decode_lengths: tuple[int, ...]
    decode_rows: tuple[int, ...]
    beams: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Model:
    """A served model and its limits.

    Attributes:
        name: Name that requests use.
        family: Family of the architecture, such as ``gpt2``.
        tokenizer: Class of the tokenizer.
        vocab_size: Number of token ids.
        max_length: Most tokens of prompt and generation together.
        eos_token_ids: Tokens that end a generation unless the request names others.
        default_do_sample: Whether requests that do not say sample.
        default_temperature: Temperature of requests that sample and do not say.
        dtype: Type the weights and caches are computed in, such as ``float32``.
        parameters: Number of parameters.
        weight_bytes: Memory of the weights on one device, in bytes.
        kv_cache_bytes: Memory of the key/value caches on one device, in bytes.
        slots: Requests one worker runs at a time; more wait.
        ladders: Shapes its graphs can have.
        ready_workers: Workers that can run it now.
    """

    name: str
    family: str
    tokenizer: str
    vocab_size: int
    max_length: int
    eos_token_ids: tuple[int, ...]
    default_do_sample: bool
    default_temperature: float
    dtype: str
    parameters: int
    weight_bytes: int
    kv_cache_bytes: int
    slots: int
    ladders: Ladders
    ready_workers: int
