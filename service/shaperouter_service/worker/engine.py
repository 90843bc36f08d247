"""The engine: a worker's models, lanes, graphs and device thread, without any gRPC."""

import contextlib
import gc
import math
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import structlog
import tensorflow as tf

from shaperouter_service.compile_cache import CompileCache
from shaperouter_service.decoding import enter_thread
from shaperouter_service.errors import (
    GraphRefusedError,
    ModelUnloadingError,
    StartupError,
    StoppingError,
    UnknownModelError,
)
from shaperouter_service.graphs import CompileBudget, GraphTable
from shaperouter_service.kernels import choose
from shaperouter_service.models import (
    DeviceKind,
)
from shaperouter_service.routing.call_ladders import CallLadders
from shaperouter_service.routing.costs import Costs
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.routing.served_model import ServedModel
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.routing.snapshots import CompileMode, GraphReport, Snapshot
from shaperouter_service.system.devices import usable_cores
from shaperouter_service.system.populated_memory import PopulatedMemory
from shaperouter_service.system.process import run_at_low_priority
from shaperouter_service.traffic_record import TrafficRecorder
from shaperouter_service.worker.call import Call
from shaperouter_service.worker.call_scheduler import CallScheduler
from shaperouter_service.worker.config import EngineConfig
from shaperouter_service.worker.device import DeviceThread
from shaperouter_service.worker.engine_parts import EngineParts
from shaperouter_service.worker.ladders import (
    all_first,
    check_further,
    check_warm,
    first_graphs,
    is_of,
)
from shaperouter_service.worker.model_table import ModelTable
from shaperouter_service.worker.models import LoadedModels, load_models
from shaperouter_service.worker.programs import ProgramFactory
from shaperouter_service.worker.run import Phase, Run
from shaperouter_service.worker.snapshot import (
    report_budget,
    report_graph,
    report_lane,
)
from shaperouter_service.worker.start_times import StartTimer
from shaperouter_service.worker.vocabularies import Vocabularies
from shaperouter_service.worker.warm_up import (
    WarmUp,
    batch_covers,
    beam_covers,
    declared_graphs,
    first_covers,
    recorded_graphs,
)
from shaperouter_service.worker.watchdog import Watchdog

# The device's next step for a run, by the run's phase.
_NEXT_STEPS: Mapping[Phase, str] = {
    Phase.ENCODE: "was to encode its source",
    Phase.PREFILL: "was to read its prompt",
    Phase.ALIGN: "was to align its transcript",
    Phase.DECODE: "was to make its tokens",
    Phase.ENDED: "had just ended it",
}

# Seconds between two checks whether the last run of an unloaded model has ended.
UNLOAD_INTERVAL = 0.02

log = structlog.get_logger(__name__)


class Engine:
    """Everything a worker computes with. Any thread may call its methods.

    Attributes:
        vocabularies: The vocabularies of its models.
    """

    def __init__(
        self,
        config: EngineConfig,
        *,
        on_change: Callable[[], None],
        on_warm: Callable[[], None],
        on_defect: Callable[[], None],
        compile_cache: CompileCache | None = None,
        record: Path | None = None,
        prefetched: dict[str, PopulatedMemory] | None = None,
    ) -> None:
        """Loads the models and starts the threads.

        Args:
            config: The configuration.
            on_change: Called from other threads when the snapshot has changed.
            on_warm: Called instead when each graph of the warm-up has become ready or failed.
            on_defect: Called from another thread if the device thread cannot continue.
            compile_cache: The compile cache; None to compile everything.
            record: Directory of the record of traffic; None to keep none.
            prefetched: See `load_models`.

        Raises:
            StartupError: A model cannot be loaded or cannot have the chosen rungs, or a declared
                signature is not one of the ladders.
        """
        self._config = config
        self._on_change, self._on_warm = on_change, on_warm
        self._start = StartTimer()
        self._has_weights = False
        self._covers: list[Signature] = []
        # Graphs to request as soon as the device is idle.
        self._idle_covers: list[Signature] = []
        # When each model last got a run or call, on the monotonic clock.
        self._last_used: dict[str, float] = {}
        self._compile_cache, self._record = compile_cache, record
        self.vocabularies = Vocabularies(config.models)
        self._start_device()
        loaded = load_models(
            config,
            config.models,
            kernels=self._kernels,
            compile_cache=compile_cache,
            prefix_growth=config.prefix_cache_bytes,
            prefetched=prefetched,
        )
        self._recorder = TrafficRecorder(record, loaded.all_ladders)
        self._programs = ProgramFactory(loaded, speculates=config.speculate == "ngram")
        self._costs = Costs(loaded.dimensions)
        self._graphs = self._make_graph_table(loaded.all_ladders)
        self._warm_up = WarmUp(self._graphs)
        self._watchdog = Watchdog(config.hang_timeout, on_hang=on_defect)
        self._models = ModelTable(
            config,
            self._graphs,
            self._programs,
            self._recorder,
            self._watchdog,
            kernels=self._kernels,
        )
        self._models.add(loaded)
        self._thread = DeviceThread(
            lambda: self._models.schedulers,
            on_turn=on_change,
            on_idle=self._idle,
            on_defect=on_defect,
            shares_cores=self._shares_cores,
        )
        try:
            self._start_serving(loaded)
        except BaseException:
            # The process ends, and must not do so during a compilation.
            self._graphs.stop()
            raise

    def _start_device(self) -> None:
        """Starts TensorFlow on the device, and chooses the native kernels."""
        if self._config.threads is not None:
            tf.config.threading.set_intra_op_parallelism_threads(self._config.threads)
        self._device = _device_name()
        on_cpu = DeviceKind.present() is DeviceKind.CPU
        # This starts TensorFlow's threads, which serve requests, at normal priority. The kernels'
        # self-check is the first code that this process compiles.
        tf.config.list_logical_devices()
        kernels = self._config.kernels
        self._kernels = run_at_low_priority(lambda: choose(kernels)) if on_cpu else None

    @property
    def _shares_cores(self) -> bool:
        """Whether the device computes on all cores, so that compilations have none of their own."""
        on_cpu, threads = DeviceKind.present() is DeviceKind.CPU, self._config.threads
        return on_cpu and (threads is None or threads >= usable_cores())

    def _start_serving(self, loaded: LoadedModels) -> None:
        """Starts the threads, requests graphs, and waits until the weights have been read.

        Raises:
            StartupError: A weight cannot be read, or a declared signature is not one of the ladders
                or has no room.
        """
        config = self._config
        self._thread.start()
        self._start_warm_up(self._record if config.make_recorded else None)
        if config.beam_cover and config.compile_mode != "frozen":
            self.request_compile(beam_covers(self._record, self._models.ladders))
            self._idle_covers = batch_covers(self._record, self._models.ladders)
        if not all(map(self._programs.is_cached, self._covers)):
            # Cores that are kept for requests have none to serve until these graphs are compiled.
            # While a graph is traced, its thread uses none, so there is one thread more than cores.
            threads = 1 + usable_cores() - config.compile_threads
            self._graphs.work_off(max(0, min(threads, self._graphs.queue_depth)))
        # The first graphs are made meanwhile.
        loaded.wait_for_weights()
        self._start.loaded()
        self._has_weights = True
        self._graph_changed()
        self._watchdog.start()

    def _make_graph_table(self, ladders: Mapping[str, Ladders | CallLadders]) -> GraphTable:
        """Creates the table of graphs.

        Args:
            ladders: The ladders of all models.

        Raises:
            StartupError: max-graphs is too small for the graphs that cover every request.
        """
        config = self._config
        first = first_graphs(ladders, max_graphs=config.max_graphs)
        return GraphTable(
            self._programs.program,
            recorder=self._recorder,
            costs=self._costs,
            budget=CompileBudget(
                mode=CompileMode(config.compile_mode),
                max_graphs=config.max_graphs,
                max_memory_bytes=config.max_memory_bytes,
                first=first,
            ),
            threads=config.compile_threads,
            on_change=self._graph_changed,
            make_builder=self._programs.make_builder,
        )

    @property
    def parts(self) -> EngineParts:
        """The parts of this engine, for tests."""
        return EngineParts(
            graphs=self._graphs,
            costs=self._costs,
            lanes=self._models.lanes,
            calls=self._models.calls,
            ladders=self._models.ladders,
            programs=self._programs,
            warm_up=self._warm_up,
            recorder=self._recorder,
            prefixes=self._models.prefixes,
            device=self._thread,
            kernels=self._kernels,
        )

    def submit(self, run: Run, model: str) -> None:
        """Queues a run.

        Raises:
            QueueFullError: There is no room.
            StoppingError: The engine is draining.
        """
        self._models.lane(run, model).submit(run)
        self._last_used[model] = time.monotonic()
        self._thread.wake()
        self._on_change()

    def call_scheduler(self, model: str) -> CallScheduler:
        """The scheduler of a model that is called once.

        Raises:
            UnknownModelError: No such model is loaded.
        """
        return self._models.call_scheduler(model)

    def submit_call(self, call: Call, model: str) -> None:
        """Queues a call.

        Raises:
            QueueFullError: There is no room.
            StoppingError: The engine is draining.
        """
        self._models.call_scheduler(model).submit(call)
        self._last_used[model] = time.monotonic()
        self._thread.wake()
        self._on_change()

    def cancel_call(self, call: Call, model: str) -> None:
        """Drops a call, unless it is being computed or has ended."""
        if model in self._models.calls:
            self._models.calls[model].cancel(call)
        self._thread.wake()

    def call_waited_for(self, call: Call) -> str:
        """Says what a call that has not ended waits for, as the end of "it waited ..."."""
        now = time.monotonic()
        if call.stalled_on is not None:
            return f"{now - call.stalled_since:.3g} s for {call.stalled_on} to be compiled"
        if not call.taken:
            return f"{now - call.arrived:.3g} s in the queue"
        return f"for the device, which had computed {call.taken} of {call.sizes.rows} rows"

    def cancel(self, run: Run, model: str) -> None:
        """Frees a run's slot at the next chunk boundary, unless the run has ended."""
        # A model is only removed once its runs have ended.
        with contextlib.suppress(UnknownModelError):
            self._models.lane(run, model).cancel(run)
        self._thread.wake()

    def waited_for(self, run: Run) -> str:
        """Says what a run that has not ended waits for, as the end of "it waited ..."."""
        now = time.monotonic()
        if run.stalled_on is not None:
            text = f"{now - run.stalled_since:.3g} s for {run.stalled_on} to be compiled"
            if self.warm:
                return text
            return f"{text}, while its worker was still starting ({self._warm_up})"
        if run.phase is Phase.QUEUED:
            return f"{now - run.timings.arrived:.3g} s in the queue for a slot"
        return f"for the device, which {_NEXT_STEPS[run.phase]} ({run.generated} tokens were made)"

    def drain(self) -> None:
        """Stops accepting runs and returns the queued ones; runs with a slot continue."""
        for lane in self._models.lanes.values():
            lane.drain(StoppingError())
        for scheduler in self._models.calls.values():
            scheduler.drain(StoppingError())
        self._thread.wake()

    def load(self, name: str, directory: Path, digest: str) -> WarmUp:
        """Loads a model beside those that serve, and requests the graphs to make before it serves.

        These are graphs that cover every request, those that are declared for the name that the
        model is a revision of, and those that recorded traffic makes worth it.
        Runs and calls of the model are accepted from now on.

        Args:
            name: As runs and calls will name it.
            directory: Its directory.
            digest: What the digest of its files must be.

        Raises:
            StartupError: It cannot be loaded, does not fit into memory or the budget of graphs, or
                has other files.
            OSError: No file descriptor is free.
        """
        enter_thread()
        config = self._config
        loaded = load_models(
            config,
            {name: directory},
            kernels=self._kernels,
            compile_cache=self._compile_cache,
            prefix_growth=self._models.prefixes.growth,
            cache_growth=self._models.cache_growth,
        )
        loaded.wait_for_weights()
        if loaded.digests[name] != digest:
            raise StartupError(
                f"{directory}: its files differ from those that were to be loaded: their digest is "
                f"{loaded.digests[name]}, not {digest}"
            )
        check_further(
            self._graphs, all_first(loaded.all_ladders), models=[*self._models.names, name]
        )
        try:
            return self._serve(name, directory, loaded)
        except BaseException:
            self.unload(name)
            raise

    def _serve(self, name: str, directory: Path, loaded: LoadedModels) -> WarmUp:
        """Serves a model that was loaded, and requests its graphs."""
        ladders = loaded.all_ladders
        self.vocabularies.add(name, directory)
        self._recorder.add(ladders)
        self._programs.add(loaded)
        self._graphs.add(loaded.dimensions, first=all_first(ladders))
        self._models.add(loaded)
        self._last_used[name] = time.monotonic()
        # What this process has served of the model is in the record, too.
        self._recorder.save()
        declared = declared_graphs(self._config.warm, ladders)
        room = max(0, self._graphs.room_once_thawed - len(declared))
        recorded = recorded_graphs(self._record, ladders, limit=room)
        covers = first_covers(ladders)
        warm_up = WarmUp(self._graphs, covers=covers, further=[*declared, *recorded])
        self._graphs.thaw(warm_up.signatures)
        warm_up.start()
        self._on_change()
        return warm_up

    def unload(self, name: str) -> None:
        """Frees a model once its runs and calls have ended; further ones are refused.

        TensorFlow keeps the compiled graphs, without the weights.
        """
        for scheduler in self._models.schedulers_of(name):
            scheduler.drain(ModelUnloadingError(name))
        self._thread.wake()
        while self._models.is_used(name):
            time.sleep(UNLOAD_INTERVAL)
        self._models.remove(name)
        self._covers = [signature for signature in self._covers if signature.model != name]
        self._warm_up.forget(name)
        self._graphs.remove(name)
        self._programs.remove(name)
        self._recorder.remove(name)
        self.vocabularies.remove(name)
        self._last_used.pop(name, None)
        # Functions of TensorFlow are reference cycles, which hold the weights until they are
        # collected.
        gc.collect()
        self._on_change()

    def is_used(self, name: str) -> bool:
        """Whether a model has runs or calls."""
        return self._models.is_used(name)

    def idle_seconds(self, name: str) -> float:
        """Seconds since a model was seen to have runs or calls, or was loaded; 0 while it has."""
        if self.is_used(name):
            self._last_used[name] = time.monotonic()
        return max(0.0, time.monotonic() - self._last_used.get(name, math.inf))

    def model(self, name: str) -> ServedModel:
        """Describes a model.

        Raises:
            UnknownModelError: The model is not loaded.
        """
        return self._models.describe(name)

    def snapshot(self, worker: str, incarnation: str) -> Snapshot:
        """Describes the whole state."""
        return Snapshot(
            worker=worker,
            incarnation=incarnation,
            device=self._device,
            models=self._models.descriptions(),
            graphs=self._report_graphs(worker),
            lanes=[report_lane(scheduler) for scheduler in self._models.lanes.values()],
            call_queues=[scheduler.report() for scheduler in self._models.calls.values()],
            prefixes=[*self._models.prefixes.reports.values()],
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

    def request_compile(self, signatures: Iterable[Signature]) -> dict[Signature, str]:
        """Requests graphs, to be compiled in this order; returns those refused, with reasons."""
        refused = {}
        for signature in signatures:
            try:
                if is_of(self._models.all_ladders, signature):
                    self._graphs.request_compile(signature, urgent=False)
                else:
                    refused[signature] = "it is none of the worker's ladders"
            except GraphRefusedError as error:
                refused[signature] = str(error)
        return refused

    @property
    def warm(self) -> bool:
        """Whether all graphs of the warm-up have become ready or failed."""
        return self._warm_up.is_done

    def save_record(self) -> None:
        """Writes the record of traffic to disk, which takes some milliseconds."""
        self._recorder.save()

    def _start_warm_up(self, record: Path | None) -> None:
        """Requests the graphs that cover every request, and the declared or recorded ones.

        Raises:
            StartupError: A declared signature is not one of the ladders, or has no room.
        """
        ladders = self._models.all_ladders
        self._covers = first_covers(ladders)
        warm = self._config.warm
        check_warm(ladders, warm)
        recorded = recorded_graphs(record, ladders, limit=self._graphs.room)
        is_lazy = self._graphs.budget.mode is CompileMode.LAZY
        # Complete before anything is requested: a frozen worker compiles nothing after the warm-up.
        further = warm or ([] if is_lazy else recorded)
        self._warm_up = WarmUp(self._graphs, covers=self._covers, further=further)
        count = len(self._warm_up.signatures)
        log.info("compiling or loading graphs before the worker is ready", graphs=count)
        self._warm_up.start()
        if is_lazy:
            # Loading cached graphs takes a moment. Other graphs must prove their worth again.
            self.request_compile(
                signature for signature in recorded if self._programs.is_cached(signature)
            )

    def _idle(self) -> bool:
        """Does what can wait until the device is idle; returns whether it has used the device."""
        # Not beside the graph for beam searches, which a request may wait for.
        if (
            self._idle_covers
            and self._has_weights
            and self.warm
            and not any(each.state.on_the_way for each in self._graphs.graphs())
        ):
            covers, self._idle_covers = self._idle_covers, []
            with contextlib.suppress(KeyError):  # a model is just being unloaded
                self.request_compile(covers)
        return any(scheduler.idle() for scheduler in self._models.calls.values())

    def _graph_changed(self) -> None:
        notify = self._on_change
        if self._has_weights:
            warm = self.warm
            if warm and self._start.times.warm_seconds is None:
                notify = self._on_warm
            covered = all(self._graphs.known(signature).has_ended for signature in self._covers)
            self._start.record_graphs(covered=covered, warm=warm)
            self._warm_up.log_progress()
            if self._graphs.budget.mode is CompileMode.FROZEN and warm:
                self._graphs.freeze()
        self._thread.wake()
        notify()


def _device_name() -> str:
    return f"{DeviceKind.present()}:0"
