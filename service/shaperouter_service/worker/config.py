"""What an engine is configured with, from the command line down to the device thread."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from shaperouter_service.routing.ladders import PREFILL_PIECE
from shaperouter_service.routing.signatures import Signature

# Seconds. A call is made to take a tenth of one, and the longest healthy ones take a few on the
# slowest machine; compilations are not calls, and may take minutes.
HANG_TIMEOUT = 30.0


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """The configuration of an engine; `--help` of `shaperouterd worker` says more of each.

    Attributes:
        models: Directory of each model, by name.
        dtype: Type of the weights, and of caches without the native kernels; auto is bfloat16 on a
            GPU and float32 elsewhere.
        kernels: Whether the native kernels compute products on a CPU, if they are there.
        beam_cover: Whether to compile, before anybody asks, a graph that covers most beam searches.
        slots: Requests without beam search that run at a time, for each model.
        queue_limit: Requests that wait for a slot, for each model and beam width.
        compile_threads: Compilations at a time.
        compile_mode: When graphs are compiled.
        warm: Graphs to compile before the worker is ready, besides those that cover every request.
        max_graphs: Maximum number of graphs, of all models.
        max_memory_bytes: Memory of the process above which it compiles nothing more; 0 is no limit.
        prefill_lengths: Chosen rungs of models, by name; others have those of `Ladders.default`.
        decode_lengths: Likewise.
        encode_lengths: Likewise, of models that have an encoder.
        prefill_piece: Maximum tokens of a prompt that are read at a time; a family that has an
            encoder may name less.
        threads: Threads that compute one graph on a CPU; None is one a core. The first engine of a
            process decides.
        hang_timeout: Seconds after which a call of a graph has hung, and the process ends.
        make_recorded: Whether to compile what the record of traffic says before anybody asks.
        trace_apart: Whether to trace in a process of its own while requests run, which tracing in
            this one would hold up; on a CPU only.
    """

    models: Mapping[str, Path]
    dtype: Literal["auto", "float32", "bfloat16", "int8"]
    slots: int
    queue_limit: int
    compile_threads: int
    max_graphs: int
    kernels: Literal["auto", "off"] = "auto"
    beam_cover: bool = False
    compile_mode: Literal["lazy", "warm", "frozen"] = "lazy"
    warm: Sequence[Signature] = ()
    max_memory_bytes: int = 0
    prefill_lengths: Mapping[str, Sequence[int]] = field(default_factory=dict)
    decode_lengths: Mapping[str, Sequence[int]] = field(default_factory=dict)
    encode_lengths: Mapping[str, Sequence[int]] = field(default_factory=dict)
    prefill_piece: int = PREFILL_PIECE
    threads: int | None = None
    hang_timeout: float = HANG_TIMEOUT
    make_recorded: bool = True
    trace_apart: bool = False
