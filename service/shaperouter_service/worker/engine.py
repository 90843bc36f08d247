"""The engine: a worker's models, lanes, graphs and device thread, without any gRPC."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import structlog
import tensorflow as tf

from shaperouter_service.compile_cache import CompileCache, Section
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
    GraphTable,
    Making,
    TracingProcess,
    cache_key,
    lower_here,
)
from shaperouter_service.kernels import choose
from shaperouter_service.models import (
    DeviceKind,
    Model,
    load_model,
    resolve_dtype,
)
from shaperouter_service.routing.costs import Costs, Dimensions
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.routing.priority import priority_order
from shaperouter_service.routing.served_model import ServedModel
from shaperouter_service.routing.signatures import GraphKind, Signature
from shaperouter_service.routing.snapshots import CompileMode, GraphReport, Snapshot
from shaperouter_service.system.process import run_at_low_priority
from shaperouter_service.traffic_record import TrafficRecorder, read_record
from shaperouter_service.worker.config import EngineConfig
from shaperouter_service.worker.device import DeviceThread
from shaperouter_service.worker.encoded_sources import EncodedSources
from shaperouter_service.worker.ladders import check_warm, first_graphs, is_of, make_ladders
from shaperouter_service.worker.run import Run
from shaperouter_service.worker.scheduler import LaneScheduler
from shaperouter_service.worker.snapshot import (
    describe_model,
    report_budget,
    report_graph,
    report_lane,
)
from shaperouter_service.worker.start_times import StartTimer
from shaperouter_service.worker.stop_strings import Vocabularies
from shaperouter_service.worker.waited_for import waited_for
from shaperouter_service.worker.warm_up import WarmUp
from shaperouter_service.worker.watchdog import Watchdog

NO_CHOICE: Mapping[str, Sequence[int]] = {}

log = structlog.get_logger(__name__)


class Engine:
    """Everything a worker computes with. Its methods may be called from any thread.

    Attributes:
        vocabularies: Of its models.
    """

    def __init__(
        self,
        config: EngineConfig,
        *,
        on_change: Callable[[], None],
        on_defect: Callable[[], None],
        compile_cache: CompileCache | None = None,
        record: Path | None = None,
    ) -> None:
        """Loads the models and starts the threads.

        Args:
            config: What to compute with.
            on_change: Called from other threads when `snapshot` would tell something new.
            on_defect: Called from another thread if the device thread can't go on.
            compile_cache: What graphs are loaded from and kept in, if anything.
            record: Directory of the record of traffic, if there is to be one.

        Raises:
            StartupError: A model cannot be loaded or cannot have the chosen rungs, or a signature
                is none of the ladders'.
        """
        self._config = config
        self._on_change = on_change
        self._start = StartTimer()
        self._covers: list[Signature] = []
        self._sections: dict[str, Section] = {}
        self._models: dict[str, Model] = {}
        self._ladders: dict[str, Ladders] = {}
        self.vocabularies = Vocabularies(config.models)
        self._start_device()
        self._load_models(compile_cache)
        self._recorder = TrafficRecorder(record, self._ladders)
        self._graphs = self._make_graph_table()
        self._warm_up = WarmUp(self._graphs, [])
        watchdog = Watchdog(config.hang_timeout, on_hang=on_defect)
        self._lanes = self._make_lanes(watchdog)
        self._thread = DeviceThread(
            list(self._lanes.values()), on_turn=on_change, on_defect=on_defect
        )
        self._thread.start()
        self._make_first(record if config.make_recorded else None)
        if config.beam_cover and config.compile_mode != "frozen":
            self._make_beam_covers(record)
        watchdog.start()

    def _start_device(self) -> None:
        """Starts TensorFlow on the device, and finds out what computes products on it."""
        if self._config.threads is not None:
            tf.config.threading.set_intra_op_parallelism_threads(self._config.threads)
        self._device = _device_name()
        self._on_cpu = DeviceKind.present() is DeviceKind.CPU
        # TensorFlow's own threads, which serve, begin with it. What the kernels are tried by is
        # the first that this process compiles.
        tf.config.list_logical_devices()
        kernels = self._config.kernels
        self._kernels = run_at_low_priority(lambda: choose(kernels)) if self._on_cpu else None

    def _load_models(self, compile_cache: CompileCache | None) -> None:
        """Reads all models into memory, and names what the cache has of each.

        Raises:
            StartupError: One cannot be loaded, or cannot have the chosen rungs.
        """
        config = self._config
        packed = self._kernels is not None
        dtype = resolve_dtype(config.dtype, packed=packed)
        for name, directory in config.models.items():
            log.info("loading model", model=name, directory=str(directory))
            model = load_model(name, directory, dtype, packed=packed)
            prepare_caches(model)
            self._models[name] = model
            self._ladders[name] = make_ladders(
                name,
                model.family,
                slots=config.slots,
                prefill_piece=config.prefill_piece,
                prefill_lengths=config.prefill_lengths.get(name, ()),
                decode_lengths=config.decode_lengths.get(name, ()),
                encode_lengths=config.encode_lengths.get(name, ()),
            )
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
        self._start.loaded()

    def _make_graph_table(self) -> GraphTable:
        """Makes the table of graphs, and what traces for it.

        Raises:
            StartupError: It may not have as many graphs as it takes to cover every request.
        """
        config = self._config
        first = first_graphs(self._ladders, max_graphs=config.max_graphs)
        # TensorFlow lowers only for a device it has, and two processes would share a GPU's memory.
        apart = config.trace_apart and self._on_cpu
        self._tracing = TracingProcess(self._models.values()) if apart else None
        return GraphTable(
            self._build,
            recorder=self._recorder,
            costs=Costs({name: self._dimensions(name) for name in self._models}),
            budget=CompileBudget(
                mode=CompileMode(config.compile_mode),
                max_graphs=config.max_graphs,
                max_memory_bytes=config.max_memory_bytes,
                first=first,
            ),
            threads=config.compile_threads,
            on_change=self._graph_changed,
            making=self._making,
        )

    def _make_lanes(self, watchdog: Watchdog) -> dict[tuple[str, int], LaneScheduler]:
        """Makes the lanes of all models, by model and beam width."""
        encoded = {name: EncodedSources() for name in self._models}
        return {
            (name, lane.beams): LaneScheduler(
                self._models[name],
                ladders,
                self._graphs,
                beams=lane.beams,
                queue_limit=self._config.queue_limit,
                encoded=encoded[name],
                watchdog=watchdog,
                recorder=self._recorder,
            )
            for name, ladders in self._ladders.items()
            for lane in ladders.lanes
        }

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

    def waited_for(self, run: Run) -> str:
        """What a run waits for, in words; see the module of that name."""
        return waited_for(run, self._warm_up, time.monotonic())

    def drain(self) -> None:
        """Takes no more runs, and gives back those that wait; what has a slot goes on."""
        for lane in self._lanes.values():
            lane.drain()
        self._thread.wake()

    def model(self, name: str) -> ServedModel:
        """Describes a model.

        Raises:
            UnknownModelError: It is not loaded.
        """
        if name not in self._models:
            raise UnknownModelError(name, list(self._models))
        lanes = [lane for (model, _), lane in self._lanes.items() if model == name]
        return describe_model(
            self._models[name], self._ladders[name], lanes, kernels=self._kernels or ""
        )

    def snapshot(self, worker: str, incarnation: str) -> Snapshot:
        """Tells the whole state."""
        return Snapshot(
            worker=worker,
            incarnation=incarnation,
            device=self._device,
            models=[self.model(name) for name in self._models],
            graphs=self._report_graphs(worker),
            lanes=[report_lane(scheduler) for scheduler in self._lanes.values()],
            compile_queue_depth=self._graphs.queue_depth,
            warm=self.warm,
            budget=report_budget(self._graphs),
            start=self._start.times,
        )

    def _report_graphs(self, worker: str) -> list[GraphReport]:
        left, first = self._graphs.left_seconds(), set(self._warm_up.signatures)
        return [
            report_graph(
                graph,
                worker,
                left_seconds=left.get(graph.signature, 0.0),
                before_ready=graph.signature in first,
            )
            for graph in self._graphs.graphs()
        ]

    def want(self, signatures: Iterable[Signature]) -> dict[Signature, str]:
        """Has graphs made in the background, in order; tells which it will not make, and why."""
        refused = {}
        for signature in signatures:
            try:
                if is_of(self._ladders, signature):
                    self._graphs.want(signature, urgent=False)
                else:
                    refused[signature] = "it is none of the worker's ladders"
            except GraphRefusedError as error:
                refused[signature] = str(error)
        return refused

    @property
    def warm(self) -> bool:
        """Whether it has made what it makes before anybody asks, as far as that can be made."""
        return self._warm_up.is_done

    def save_record(self) -> None:
        """Writes down what traffic there was; it takes some milliseconds, and files."""
        self._recorder.save()

    def _make_first(self, record: Path | None) -> None:
        """Asks for what covers every request, for what was declared, and for what there was before.

        Raises:
            StartupError: A declared signature is none of the ladders', or has no room.
        """
        self._covers = [
            signature
            for name, ladders in self._ladders.items()
            for signature in (*ladders.first_to_read(name), ladders.first_decode(name, beams=1))
        ]
        warm = self._config.warm
        check_warm(self._ladders, warm)
        recorded = self._recorded(record)
        is_lazy = self._graphs.budget.mode is CompileMode.LAZY
        # Whole before anything is made: once all of it is, nothing more may be.
        first = [*self._covers, *(warm or ([] if is_lazy else recorded))]
        self._warm_up = WarmUp(self._graphs, first)
        count = len(self._warm_up.signatures)
        log.info("compiling or loading graphs before the worker is ready", graphs=count)
        for signature in self._warm_up.signatures:
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
        return priority_order(traffic, self._ladders, limit=self._graphs.room)

    def _is_kept(self, signature: Signature) -> bool:
        section = self._sections.get(signature.model)
        return section is not None and section.has(self._build(signature).label)

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
        self._start.made(covered=covered, warm=self.warm)
        self._warm_up.tell()
        if self._graphs.budget.mode is CompileMode.FROZEN and self.warm:
            self._graphs.freeze()
        self._thread.wake()
        self._on_change()


def _section(compile_cache: CompileCache, model: Model) -> Section:
    """What is kept of a model's graphs; the log says why there is nothing, where there was once."""
    key = cache_key(model)
    changed = compile_cache.changed_parts(key)
    # Of other dimensions it is another model.
    if changed and "dimensions" not in changed:
        log.info("no cached graph matched", model=model.name, changed=changed, section=key.name)
    return compile_cache.section(key)


def _device_name() -> str:
    return f"{DeviceKind.present()}:0"
