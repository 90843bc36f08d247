"""The engine: a worker's models, lanes, graphs and device thread, without any gRPC."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import structlog
import tensorflow as tf

from shaperouter.v1 import model_pb2, worker_pb2
from shaperouter_service.cache import CompileCache, Section
from shaperouter_service.decoding import (
    AlignProgram,
    DecodeProgram,
    EncodeProgram,
    PrefillProgram,
    Program,
    prepare_caches,
)
from shaperouter_service.decoding.lowering import Lowered
from shaperouter_service.errors import GraphRefusedError, StartupError, UnknownModelError
from shaperouter_service.graphs import (
    CachedMaking,
    CompileBudget,
    CompileMode,
    GraphTable,
    Making,
    TracingProcess,
    cache_key,
    giving_way,
    lower_here,
)
from shaperouter_service.kernels import KernelsChoice, choose
from shaperouter_service.models import (
    DeviceKind,
    DType,
    EncoderDecoder,
    Model,
    load_model,
    resolve_dtype,
)
from shaperouter_service.record import TrafficRecorder, read_record
from shaperouter_service.routing.costs import Costs, Dimensions
from shaperouter_service.routing.ladders import PREFILL_PIECE, Ladders
from shaperouter_service.routing.signatures import GraphKind, Signature
from shaperouter_service.routing.worth import worth_order
from shaperouter_service.worker.device import DeviceThread
from shaperouter_service.worker.encoded_sources import EncodedSources
from shaperouter_service.worker.run import Run
from shaperouter_service.worker.scheduler import LaneScheduler
from shaperouter_service.worker.snapshot import (
    budget_message,
    graph_message,
    lane_message,
    model_message,
)
from shaperouter_service.worker.start_times import StartTimes
from shaperouter_service.worker.watchdog import HANG_TIMEOUT, Watchdog

NO_CHOICE: Mapping[str, Sequence[int]] = {}

log = structlog.get_logger(__name__)


class Engine:
    """Everything a worker computes with. Its methods may be called from any thread."""

    def __init__(
        self,
        models: Mapping[str, Path],
        *,
        dtype: Literal["auto"] | DType,
        slots: int,
        queue_limit: int,
        compile_threads: int,
        max_graphs: int,
        on_change: Callable[[], None],
        on_defect: Callable[[], None],
        mode: CompileMode = CompileMode.LAZY,
        max_memory_bytes: int = 0,
        warm: Iterable[Signature] = (),
        threads: int | None = None,
        hang_timeout: float = HANG_TIMEOUT,
        prefill_piece: int = PREFILL_PIECE,
        prefill_lengths: Mapping[str, Sequence[int]] = NO_CHOICE,
        decode_lengths: Mapping[str, Sequence[int]] = NO_CHOICE,
        encode_lengths: Mapping[str, Sequence[int]] = NO_CHOICE,
        compile_cache: CompileCache | None = None,
        record: Path | None = None,
        make_recorded: bool = True,
        trace_apart: bool = False,
        kernels: KernelsChoice = "auto",
        beam_cover: bool = False,
    ) -> None:
        """Loads the models and starts the threads.

        Args:
            models: Directory of each model by name.
            dtype: Type of weights, and of caches without the native kernels; auto is bfloat16 on a
                GPU, float32 elsewhere.
            slots: Requests without beam search that run at a time, for each model.
            queue_limit: Requests that wait for a slot, for each model and beam width.
            compile_threads: Compilations at a time.
            max_graphs: Most graphs, of all models.
            on_change: Called from other threads when `snapshot` would tell something new.
            on_defect: Called from another thread if the device thread can't go on.
            mode: When it compiles.
            max_memory_bytes: Memory of the process above which it compiles nothing more; 0 is no
                limit.
            warm: Signatures to make before it is ready, besides those that cover every request.
            threads: That compute one graph on a CPU; None is one a core. The first engine of a
                process decides.
            hang_timeout: Seconds after which a call of a graph can't be expected to come back.
            prefill_piece: Tokens of a prompt that are read at a time, at most: a family that has an
                encoder may name less.
            prefill_lengths: Chosen rungs of models, by name; others have those of
                `Ladders.default`.
            decode_lengths: Likewise.
            encode_lengths: Likewise; of models that have an encoder.
            compile_cache: What graphs are loaded from and kept in, if anything.
            record: Directory of the record of traffic, if there is to be one.
            make_recorded: Whether to make what the record says before anybody asks.
            trace_apart: Whether to trace in a process of its own while requests run, which tracing
                in this one would hold up; on a CPU only.
            kernels: Whether products on a CPU are made by the native kernels, if they are there.
            beam_cover: Whether to make, before anybody asks, what covers most searches with beams.

        Raises:
            StartupError: A model cannot be loaded or cannot have the chosen rungs, or a signature
                is none of the ladders'.
        """
        self._start_times = StartTimes()
        if threads is not None:
            tf.config.threading.set_intra_op_parallelism_threads(threads)
        self._device = _device_name()
        on_cpu = DeviceKind.present() is DeviceKind.CPU
        # TensorFlow's own threads, which serve, begin with it. What the kernels are tried by is
        # the first that this process compiles.
        tf.config.list_logical_devices()
        self._kernels = giving_way(lambda: choose(kernels)) if on_cpu else None
        packed = self._kernels is not None
        resolved = resolve_dtype(dtype, packed=packed)
        self._on_change = on_change
        self._covers: list[Signature] = []
        self._first: list[Signature] = []
        self._sections: dict[str, Section] = {}
        self._models: dict[str, Model] = {}
        self._ladders: dict[str, Ladders] = {}
        for name, directory in models.items():
            log.info("loading model", model=name, directory=str(directory))
            model = load_model(name, directory, resolved, packed=packed)
            prepare_caches(model)
            family = model.family
            is_whole, piece = False, prefill_piece
            if isinstance(family, EncoderDecoder):
                is_whole, piece = family.has_whole_source, min(piece, family.prompt_piece)
            try:
                ladders = Ladders.default(
                    max_length=family.max_length,
                    slots=slots,
                    prefill_piece=piece,
                    prefill_lengths=prefill_lengths.get(name, ()),
                    decode_lengths=decode_lengths.get(name, ()),
                    max_source_length=family.max_source_length,
                    has_whole_source=is_whole,
                    encode_lengths=encode_lengths.get(name, ()),
                    has_transcript=family.has_transcript,
                )
            except ValueError as error:
                raise StartupError(f"{error} (model {name})") from error
            self._models[name], self._ladders[name] = model, ladders
            if compile_cache is not None:
                self._sections[name] = _section(compile_cache, model)
            log.info(
                "model loaded",
                model=name,
                dtype=model.weight_dtype.name,
                kernels=self._kernels,
                parameters=model.parameters,
                weight_bytes=model.weight_bytes,
            )
        self._start_times.loaded()
        # TensorFlow lowers only for a device it has, and two processes would share a GPU's memory.
        self._tracing = TracingProcess(self._models.values()) if trace_apart and on_cpu else None
        self._recorder = TrafficRecorder(record, self._ladders)
        self._graphs = GraphTable(
            self._build,
            recorder=self._recorder,
            costs=Costs({name: self._dimensions(name) for name in self._models}),
            budget=self._budget(mode, max_graphs, max_memory_bytes),
            threads=compile_threads,
            on_change=self._graph_changed,
            making=self._making,
        )
        watchdog = Watchdog(hang_timeout, on_hang=on_defect)
        encoded = {name: EncodedSources() for name in self._models}
        self._lanes = {
            (name, lane.beams): LaneScheduler(
                self._models[name],
                ladders,
                self._graphs,
                beams=lane.beams,
                queue_limit=queue_limit,
                encoded=encoded[name],
                watchdog=watchdog,
                recorder=self._recorder,
            )
            for name, ladders in self._ladders.items()
            for lane in ladders.lanes
        }
        self._thread = DeviceThread(
            list(self._lanes.values()), on_turn=on_change, on_defect=on_defect
        )
        self._thread.start()
        self._make_first(list(warm), record if make_recorded else None)
        if beam_cover and mode is not CompileMode.FROZEN:
            self._make_beam_covers(record)
        watchdog.start()

    def submit(self, run: Run, model: str) -> None:
        """Queues a run.

        Raises:
            QueueFullError: There is no room.
            StoppingError: The engine drains.
        """
        self._lane(run, model).submit(run)
        self._thread.wake()
        self._on_change()

    def cancel(self, run: Run, model: str) -> None:
        """Frees the run's slot at the next chunk boundary; nothing happens if it has ended."""
        self._lane(run, model).cancel(run)
        self._thread.wake()

    def drain(self) -> None:
        """Takes no more runs, and gives back those that wait; what has a slot goes on."""
        for lane in self._lanes.values():
            lane.drain()
        self._thread.wake()

    def model(self, name: str) -> model_pb2.Model:
        """Describes a model.

        Raises:
            UnknownModelError: It is not loaded.
        """
        if name not in self._models:
            raise UnknownModelError(name, list(self._models))
        lanes = [lane for (model, _), lane in self._lanes.items() if model == name]
        return model_message(
            self._models[name], self._ladders[name], lanes, kernels=self._kernels or ""
        )

    def snapshot(self, worker: str, incarnation: str) -> worker_pb2.WatchResponse:
        """Tells the whole state."""
        return worker_pb2.WatchResponse(
            worker=worker,
            incarnation=incarnation,
            device=self._device,
            models=[self.model(name) for name in self._models],
            graphs=[graph_message(graph, worker) for graph in self._graphs.graphs()],
            lanes=[lane_message(scheduler) for scheduler in self._lanes.values()],
            compile_queue_depth=self._graphs.queue_depth,
            warm=self.warm,
            budget=budget_message(self._graphs),
            start=self._start_times.to_proto(),
        )

    def want(self, signatures: Iterable[Signature]) -> dict[Signature, str]:
        """Has graphs made in the background, in order; tells which it will not make, and why."""
        refused = {}
        for signature in signatures:
            try:
                if self._is_ours(signature):
                    self._graphs.want(signature, urgent=False)
                else:
                    refused[signature] = "it is none of the worker's ladders"
            except GraphRefusedError as error:
                refused[signature] = str(error)
        return refused

    @property
    def warm(self) -> bool:
        """Whether it has made what it makes before anybody asks, as far as that can be made."""
        return all(self._graphs.graph(signature).has_ended for signature in self._first)

    def save_record(self) -> None:
        """Writes down what traffic there was; it takes some milliseconds, and files."""
        self._recorder.save()

    def _make_first(self, warm: Sequence[Signature], record: Path | None) -> None:
        """Asks for what covers every request, for what was declared, and for what there was before.

        Raises:
            StartupError: A declared signature is none of the ladders', or has no room.
        """
        self._covers = [
            signature
            for name, ladders in self._ladders.items()
            for signature in (*ladders.first_to_read(name), ladders.first_decode(name, beams=1))
        ]
        for signature in warm:
            if not self._is_ours(signature):
                raise StartupError(f"warm: {signature} is none of the ladders' signatures")
        recorded = self._recorded(record)
        is_lazy = self._graphs.budget.mode is CompileMode.LAZY
        # Whole before anything is made: once all of it is, nothing more may be.
        self._first = [*self._covers, *(warm or ([] if is_lazy else recorded))]
        log.info("making graphs before the worker is ready", graphs=len(set(self._first)))
        for signature in self._first:
            try:
                self._graphs.want(signature, urgent=signature in self._covers)
            except GraphRefusedError as error:
                raise StartupError(f"warm: {error}") from error
        if is_lazy:
            # What the cache has takes a moment. Everything else must prove its worth again.
            self.want(signature for signature in recorded if self._is_kept(signature))

    def _make_beam_covers(self, record: Path | None) -> None:
        """Asks for a graph of each model that most searches with beams can run on.

        Unless the record has traffic of the model, and none with beams: what was made for nobody
        is no traffic.
        """
        recorded = read_record(record) if record else {}
        for name, ladders in self._ladders.items():
            known = recorded[name].signatures if name in recorded else {}
            served = {signature.beams for signature, traffic in known.items() if traffic.calls}
            if not served or max(served) > 1:
                self.want([ladders.first_decode(name, ladders.usual_beams)])

    def _recorded(self, record: Path | None) -> list[Signature]:
        """What the record says is worth making, as much as there is room for."""
        if record is None:
            return []
        traffic = read_record(record).values()
        return worth_order(traffic, self._ladders, limit=self._graphs.room)

    def _is_kept(self, signature: Signature) -> bool:
        section = self._sections.get(signature.model)
        return section is not None and section.has(self._build(signature).label)

    def _is_ours(self, signature: Signature) -> bool:
        ladders = self._ladders.get(signature.model)
        return ladders is not None and signature in ladders.signatures(signature.model)

    def _dimensions(self, name: str) -> Dimensions:
        model, ladders = self._models[name], self._ladders[name]
        return Dimensions(
            weight_bytes=model.weight_bytes,
            cache_bytes_per_token=model.kv_cache_bytes_per_token,
            prefill_piece=ladders.prefill_piece,
            encoder_weight_bytes=model.encoder_weight_bytes,
            max_source_length=model.family.max_source_length,
            has_whole_source=ladders.encoder is not None and ladders.encoder.has_whole_source,
        )

    def _budget(self, mode: CompileMode, max_graphs: int, max_memory_bytes: int) -> CompileBudget:
        first = [
            signature
            for name, ladders in self._ladders.items()
            for signature in ladders.first(name)
        ]
        if max_graphs < len(first):
            raise StartupError(
                f"max-graphs: must be at least {len(first)}, for the graphs that cover every "
                f"request of {', '.join(self._ladders)}; got {max_graphs}"
            )
        return CompileBudget(
            mode=mode, max_graphs=max_graphs, max_memory_bytes=max_memory_bytes, first=first
        )

    def _lane(self, run: Run, model: str) -> LaneScheduler:
        return self._lanes[model, self._ladders[model].lane(run.lane_beams or run.num_beams).beams]

    def _build(self, signature: Signature) -> Program:
        model = self._models[signature.model]
        rows, beams, length = signature.rows, signature.beams, signature.length
        name = f"{signature.model}_{signature.kind}_{rows}x{length}"
        if signature.kind is GraphKind.ENCODE:
            return EncodeProgram(name, model, rows=rows, length=length)
        if signature.kind is GraphKind.PREFILL:
            piece = self._ladders[signature.model].prefill_piece
            return PrefillProgram(name, model, rows=rows, length=length, piece=piece)
        if signature.kind is GraphKind.ALIGN:
            return self._build_align(name, model, signature)
        name = f"{name}_beams{beams}"
        return DecodeProgram(name, model, rows=rows, beams=beams, length=length)

    @staticmethod
    def _build_align(name: str, model: Model, signature: Signature) -> Program:
        transcripts = model.transcripts
        if transcripts is None:
            raise TypeError(f"{model.name} makes no transcripts")
        return AlignProgram(
            name,
            model,
            rows=signature.rows,
            length=signature.length,
            heads=transcripts.alignment_heads,
            text_tokens=transcripts.settings.tokens.end,
        )

    def _making(self, program: Program) -> Making:
        section = self._sections.get(program.model.name)
        if section is None:
            return Making(program, self._lower)
        return CachedMaking(program, section, self._lower)

    def _lower(self, program: Program) -> Lowered:
        # The other process takes seconds to start, and whom nobody would wait for needs none.
        if self._tracing is None or not (self._tracing.running or self._serves):
            return lower_here(program)
        return self._tracing.lower(program)

    @property
    def _serves(self) -> bool:
        return any(lane.active_slots for lane in self._lanes.values())

    def _graph_changed(self) -> None:
        covered = all(self._graphs.graph(signature).has_ended for signature in self._covers)
        self._start_times.made(covered=covered, warm=self.warm)
        if self._graphs.budget.mode is CompileMode.FROZEN and self.warm:
            self._graphs.freeze()
        self._thread.wake()
        self._on_change()


def _section(compile_cache: CompileCache, model: Model) -> Section:
    """What is kept of a model's graphs; the log says why there is nothing, where there was once."""
    key = cache_key(model)
    changed = compile_cache.changed(key)
    # Of other dimensions it is another model.
    if changed and "dimensions" not in changed:
        log.info("compile cache begins anew", model=model.name, changed=changed, section=key.name)
    return compile_cache.section(key)


def _device_name() -> str:
    return f"{DeviceKind.present()}:0"
