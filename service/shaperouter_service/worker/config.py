"""The configuration of an engine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from shaperouter_service.routing.ladders import PREFILL_PIECE
from shaperouter_service.routing.signatures import Signature

# Seconds. A call should take 0.1 s, and the longest healthy ones take a few seconds on the slowest
# machine. Compilations are not calls and may take minutes.
HANG_TIMEOUT = 30.0


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """The configuration of an engine; see `shaperouterd worker --help` for the details.

    Attributes:
        models: Directory of each model, by name.
        dtype: Type of the weights; auto is bfloat16 on a GPU and float32 elsewhere.
        kv_cache_dtype: Type of caches; auto is float32 for weights in float32, bfloat16 for others.
        kernels: Whether to use the native kernels on a CPU, if they are installed.
        beam_cover: Whether to compile in advance a graph that covers most beam searches, and one
            that decodes several requests together.
        slots: Number of requests without beam search that can run at a time, for each model.
        max_length: Limit of the tokens of a sequence; None for as many as each model has.
        queue_limit: Maximum number of queued requests, for each model and beam width.
        compile_threads: Maximum number of compilations at a time.
        compile_mode: The compile mode; see the glossary.
        warm: Graphs to compile before the worker is ready, besides those that cover every request.
        max_graphs: Maximum number of graphs of all models.
        max_memory_bytes: Memory of the process above which only first graphs are compiled; 0 means
            no limit.
        prefill_lengths: Rungs of models, by name; those of models without their own under an empty
            name. Without either, models have those of `Ladders.default`.
        decode_lengths: Likewise.
        encode_lengths: The same for sources, for models with an encoder.
        prefill_piece: Maximum number of tokens of a prompt read at a time; a family with an encoder
            may set less.
        prefix_cache_bytes: Memory of the prefix cache; 0 turns it off.
        speculate: Where proposals come from that a step checks together: `ngram`, the request's own
            tokens, or `off`.
        drafts: Directories of draft models, by the names of the models that they propose for.
        threads: Number of threads that compute a graph on a CPU; None means one per core. The first
            engine of a process decides.
        hang_timeout: Seconds after which a call of a graph counts as hung and the process ends.
        check_padding: Share of the calls of functions that are repeated exactly while the device is
            idle, to check that padding has not changed their answers.
        make_recorded: Whether to compile the graphs of the record of traffic in advance.
        repository: Directory below which models may be loaded while the worker runs; None to load
            only `models`.
    """

    models: Mapping[str, Path]
    dtype: Literal["auto", "float32", "bfloat16", "int8", "int4"]
    slots: int
    queue_limit: int
    compile_threads: int
    max_graphs: int
    kv_cache_dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    max_length: int | None = None
    kernels: Literal["auto", "off"] = "auto"
    beam_cover: bool = False
    compile_mode: Literal["lazy", "warm", "frozen"] = "lazy"
    warm: Sequence[Signature] = ()
    max_memory_bytes: int = 0
    prefill_lengths: Mapping[str, Sequence[int]] = field(default_factory=dict)
    decode_lengths: Mapping[str, Sequence[int]] = field(default_factory=dict)
    encode_lengths: Mapping[str, Sequence[int]] = field(default_factory=dict)
    prefill_piece: int = PREFILL_PIECE
    prefix_cache_bytes: int = 0
    speculate: Literal["off", "ngram"] = "off"
    drafts: Mapping[str, Path] = field(default_factory=dict)
    threads: int | None = None
    hang_timeout: float = HANG_TIMEOUT
    check_padding: float = 0.0
    make_recorded: bool = True
    repository: Path | None = None
