"""The table of a worker's graphs, which finds covers and compiles in the background."""

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import structlog

from shaperouter_service.decoding import enter_thread
from shaperouter_service.errors import GraphRefusedError
from shaperouter_service.graphs.budget import CompileBudget
from shaperouter_service.graphs.builder import Builder
from shaperouter_service.graphs.compile_queue import CompileQueue
from shaperouter_service.graphs.graph import Graph
from shaperouter_service.graphs.graph_program import GraphProgram
from shaperouter_service.graphs.memory_maps import MemoryMaps, memory_maps
from shaperouter_service.graphs.tracer import Tracer
from shaperouter_service.routing.compile_policy import SAVINGS_THRESHOLD
from shaperouter_service.routing.costs import Costs, Dimensions, cheapest
from shaperouter_service.routing.decay import DecayingSum
from shaperouter_service.routing.forecast import Forecast
from shaperouter_service.routing.signatures import GraphKind, Signature
from shaperouter_service.routing.snapshots import GraphState
from shaperouter_service.system.process import lower_priority
from shaperouter_service.traffic_record import TrafficRecorder

# XLA's recursive passes overflow the usual 8 MB of stack on large graphs.
COMPILE_STACK_BYTES = 64 * 1024 * 1024

# Seconds before a failed graph may be tried again: doubled after each failure, up to a limit.
FIRST_RETRY, LAST_RETRY = 10.0, 600.0

# Failed graphs with exact sizes that are kept for each model, so that calls get their errors and
# snapshots show them. Callers choose exact sizes, so they could make any number of graphs fail.
MAX_FAILED = 32

log = structlog.get_logger(__name__)


class NoCover:
    """The result when no ready graph covers a signature."""


NO_COVER: Final = NoCover()


_BEING_MADE = (GraphState.TRACING, GraphState.COMPILING)


class GraphTable:
    """The graphs of one worker.

    A signature has at most one graph, which the tracer traces and a compile thread compiles. Graphs
    that a request waits for come first, in the order of the requests. The others follow by the time
    they would have saved relative to their compile time. All methods may be called from any thread.

    Attributes:
        budget: Limits on what is compiled.
        threads: Number of compilations that run at a time.
        tracer: The thread that traces.
    """

    def __init__(
        self,
        build: Callable[[Signature], GraphProgram],
        *,
        costs: Costs,
        recorder: TrafficRecorder,
        budget: CompileBudget,
        threads: int,
        on_change: Callable[[], None],
        make_builder: Callable[[Any], Builder],
    ) -> None:
        """Starts the compile threads.

        Args:
            build: Creates the untraced program of a signature.
            costs: Records and estimates the times of graphs; only this table may use it.
            recorder: Records the traffic for later workers.
            budget: Limits on what is compiled.
            threads: Number of compilations that run at a time.
            on_change: Called after each change of a graph's state, on any thread.
            make_builder: Creates the builder of a program.
        """
        self.budget = budget
        self.threads = threads
        self._build = build
        self._costs = costs
        self._recorder = recorder
        self._make_builder = make_builder
        self._on_change = on_change
        self._frozen = False
        # Graphs that may be compiled nevertheless.
        self._thawed: set[Signature] = set()
        self._lock = threading.Lock()
        self.tracer = Tracer()
        self._graphs: dict[Signature, Graph] = {}
        self._queue = CompileQueue()
        self._work_there = threading.Condition(self._lock)
        self._forecast = Forecast(threads)
        self._maps = MemoryMaps()
        self._start_threads(threads, self._work)

    def graph(self, signature: Signature) -> Graph:
        """Returns the graph of a signature, creating a cold one if there is none."""
        with self._lock:
            return self._graph(signature)

    def known(self, signature: Signature) -> Graph:
        """Returns the graph of a signature, or a cold one that is not kept, as of a freed model."""
        with self._lock:
            return self._graphs.get(signature) or Graph(signature)

    def request_compile(
        self, signature: Signature, *, urgent: bool, by_call: bool = False
    ) -> Graph:
        """Queues the compilation of a graph unless it is ready or already in progress.

        Args:
            signature: The shape.
            urgent: Whether a request waits for it; urgent graphs are compiled first.
            by_call: Whether a call whose sizes it has requests it. If it fails, it is forgotten
                after `MAX_FAILED` others with exact sizes.

        Returns:
            The graph. A failed graph stays failed until it may be tried again.

        Raises:
            GraphRefusedError: The compile mode or the budget does not allow it.
        """
        with self._lock:
            # A refused graph is not kept: exact sizes are endless.
            graph = self._graphs.get(signature) or Graph(signature)
            graph.is_kept = graph.is_kept or not by_call
            if graph.state is GraphState.QUEUED:
                if urgent:
                    self._queue.hurry(signature)
                return graph
            if graph.state is not GraphState.COLD and (
                graph.state is not GraphState.FAILED or graph.has_failed
            ):
                return graph
            self._check(signature, self._counted())
            if graph.program is None:
                # First, because it fails if the model has just been removed.
                graph.program = self._build(signature)
            self._graphs[signature] = graph
            if graph.state is GraphState.COLD:
                graph.error = ""
            self._queue.put(signature, urgent=urgent)
            self._move(graph, GraphState.QUEUED)
            # Others than compile threads wait, too: `remove` and `stop`.
            self._work_there.notify_all()
        self._on_change()
        return graph

    def work_off(self, threads: int) -> None:
        """Starts more compile threads, which end once no graph is queued."""
        self._start_threads(threads, self._work_off)

    def freeze(self) -> None:
        """Refuses all further compilations, but of models that are added later."""
        with self._lock:
            self._frozen = True

    def add(self, dimensions: Mapping[str, Dimensions], *, first: Collection[Signature]) -> None:
        """Takes models that are loaded while others serve.

        Args:
            dimensions: Their sizes, by model.
            first: Their first graphs.
        """
        with self._lock:
            self._costs.add(dimensions)
            self.budget = replace(self.budget, first=[*self.budget.first, *first])

    def thaw(self, signatures: Collection[Signature]) -> None:
        """Lets a frozen table compile graphs of a model that was added after it was frozen."""
        with self._lock:
            self._thawed |= set(signatures)

    def remove(self, model: str) -> None:
        """Forgets the graphs of a model, once none of them is being made."""

        def remains(signature: Signature) -> bool:
            return signature.model != model

        with self._work_there:
            self._queue.drop(lambda signature: not remains(signature))
            self._work_there.wait_for(
                lambda: (
                    not any(
                        graph.state in _BEING_MADE and signature.model == model
                        for signature, graph in self._graphs.items()
                    )
                )
            )
            self._graphs = {s: graph for s, graph in self._graphs.items() if remains(s)}
            self._thawed = set(filter(remains, self._thawed))
            self._costs.remove(model)
            self.budget = replace(self.budget, first=list(filter(remains, self.budget.first)))

    def stop(self) -> None:
        """Drops the graphs that wait for a compile thread, and waits for those being made.

        A process that ends during a compilation of TensorFlow aborts.
        """
        with self._work_there:
            self._queue.drop(lambda _: True)
            self._work_there.wait_for(
                lambda: not any(graph.state in _BEING_MADE for graph in self._graphs.values())
            )

    def cover(self, signature: Signature) -> Graph | NoCover:
        """Returns the ready graph that runs a signature in the least time."""
        covers = {
            graph.signature: graph
            for graph in self.ready(signature.model, signature.kind, signature.beams)
            if graph.signature.covers(signature)
        }
        with self._lock:
            best = cheapest(self._costs.sound(covers), signature.rows)
        return NO_COVER if best is None else covers[best]

    def ready(self, model: str, kind: GraphKind, beams: int) -> list[Graph]:
        """Returns the ready graphs of a kind and beam width, from small to large."""
        ready = [
            graph
            for graph in self.graphs()
            if graph.state is GraphState.READY
            and graph.signature.model == model
            and graph.signature.kind is kind
            and graph.signature.beams == beams
        ]
        return sorted(ready, key=lambda graph: graph.signature.cost_order)

    def graphs(self) -> list[Graph]:
        """Returns every graph that was ever requested or missed."""
        with self._lock:
            return list(self._graphs.values())

    def record(self, graph: Graph, seconds: float, steps: int | None = None) -> float:
        """Records a call that served requests; takes and returns what `Graph.record_call` does."""
        is_typical = not self.tracer.was_tracing(seconds)
        device_seconds = graph.record_call(seconds, steps if is_typical else None)
        self._recorder.served(graph.signature, seconds, steps=steps or 0)
        # Graphs are compared by their undisturbed times: a graph that was measured while the
        # machine was busy would lose to the others and never be measured again.
        if graph.best_step_seconds is not None:
            with self._lock:
                self._costs.measured(graph.signature, graph.best_step_seconds)
        return device_seconds

    def record_missed_savings(self, asked: Signature, served: Graph, seconds: float) -> None:
        """Records the time that a call lost because its tight cover was not ready.

        Args:
            asked: The tight cover.
            served: The graph that was called.
            seconds: The time lost.
        """
        self.graph(asked).record_miss(seconds)
        self._recorder.record_missed_savings(asked, seconds)
        if served.signature.covers(asked):
            served.padded_seconds += seconds

    def record_possible_savings(self, signature: Signature, seconds: float) -> None:
        """Records the time that a graph would have saved a call if it had been ready."""
        self.graph(signature).would_save.add(seconds, time.monotonic())

    def step_seconds(self, signature: Signature) -> float:
        """Returns the device time of a step, measured or estimated."""
        with self._lock:
            return self._costs.step_seconds(signature)

    def sound_seconds(self, graphs: Sequence[Graph]) -> list[float]:
        """Returns device times of a step, none above that of a larger graph; see `Costs.sound`."""
        with self._lock:
            sound = self._costs.sound([graph.signature for graph in graphs])
        return [sound[graph.signature] for graph in graphs]

    def left_seconds(self) -> dict[Signature, float]:
        """Returns the seconds until each queued or compiling graph is expected to be ready."""
        with self._lock:
            now, needs = time.monotonic(), self._costs.compile_seconds
            queued = self._queue.in_order(self._priority)
            return self._forecast.left(
                {
                    signature: (needs(signature), now - graph.begun)
                    for signature, graph in self._graphs.items()
                    if graph.state in (GraphState.TRACING, GraphState.COMPILING)
                },
                {signature: needs(signature) for signature in queued},
            )

    @property
    def queue_depth(self) -> int:
        """Number of signatures that wait for a compile thread."""
        return len(self._queue)

    @property
    def room(self) -> int:
        """Number of graphs that may still be compiled."""
        with self._lock:
            return 0 if self._frozen else self._room(self._counted())

    @property
    def room_once_thawed(self) -> int:
        """Number of graphs that the budget has room for, whether or not the table is frozen."""
        with self._lock:
            return self._room(self._counted())

    @property
    def maps(self) -> MemoryMaps:
        """Memory maps of the process after the last graph was made."""
        return self._maps

    @property
    def exhausted(self) -> bool:
        """Whether some graph is worth compiling but the budget has no room for it."""
        with self._lock:
            if self._frozen or self._room(self._counted()) > 0:
                return False
            now = time.monotonic()
            return any(
                graph.recent_missed.at(now)
                >= SAVINGS_THRESHOLD * self._costs.compile_seconds(graph.signature)
                for graph in self._graphs.values()
                if graph.state is GraphState.COLD
            )

    def _graph(self, signature: Signature) -> Graph:
        if signature not in self._graphs:
            self._graphs[signature] = Graph(signature)
        return self._graphs[signature]

    def _counted(self) -> list[Signature]:
        lost = (GraphState.COLD, GraphState.FAILED)
        return [s for s, graph in self._graphs.items() if graph.state not in lost]

    def _forget_failed(self, model: str) -> None:
        """Forgets the oldest failed and refused graphs with exact sizes of a model.

        Keeps the newest `MAX_FAILED`, and all that were requested by name.
        """
        failed = sorted(
            (
                graph
                for graph in self._graphs.values()
                if graph.signature.model == model
                and graph.signature.exact
                and graph.was_lost
                and not graph.is_kept
            ),
            key=lambda graph: graph.since,
        )
        for graph in failed[:-MAX_FAILED]:
            del self._graphs[graph.signature]

    def _room(self, others: Collection[Signature]) -> int:
        return 0 if self._maps.spent else self.budget.room(others)

    def _check(self, signature: Signature, others: Collection[Signature]) -> None:
        """Raises an error if a graph may not be compiled.

        Args:
            signature: The shape.
            others: The other graphs that are ready, queued or compiling.

        Raises:
            GraphRefusedError: The compile mode or the budget does not allow it.
        """
        if self._frozen and signature not in self._thawed:
            raise GraphRefusedError(signature, "nothing is compiled after warm-up (mode frozen)")
        if signature in self.budget.first:
            return
        if self._maps.spent:
            raise GraphRefusedError(signature, f"the worker has {self._maps}; restart it")
        if self.budget.room(others) == 0:
            limit = f"{self.budget.max_graphs} graphs"
            if self.budget.max_memory_bytes:
                limit += f", {self.budget.max_memory_bytes} bytes of memory"
            raise GraphRefusedError(signature, f"the worker's budget is spent ({limit})")

    def _start_threads(self, count: int, work: Callable[[], None]) -> None:
        default_stack = threading.stack_size(COMPILE_STACK_BYTES)
        self.tracer.start()
        for _ in range(count):
            threading.Thread(target=work, name="compile", daemon=True).start()
        threading.stack_size(default_stack)

    def _next(self) -> Graph | None:
        """Takes the first queued graph; None if that one is refused, or if there is none."""
        with self._work_there:
            signature = self._queue.take(self._priority)
            if signature is None:
                return None
            graph = self._graphs[signature]
            try:
                # Other graphs may have used up the memory since it was requested.
                self._check(signature, [other for other in self._counted() if other != signature])
            except GraphRefusedError as error:
                log.warning("graph refused", graph=str(signature), reason=str(error))
                graph.refuse(str(error))
                self._move(graph, GraphState.COLD)
                self._forget_failed(signature.model)
                return None
            self._move(graph, GraphState.TRACING)
            graph.begun = graph.since
            return graph

    def _priority(self, signature: Signature) -> float:
        saved = self._graphs[signature].would_save.at(time.monotonic())
        return saved / self._costs.compile_seconds(signature)

    def _work(self) -> None:
        lower_priority()
        while True:
            self._make_queued()
            with self._work_there:
                self._work_there.wait_for(lambda: len(self._queue))

    def _work_off(self) -> None:
        lower_priority()
        self._make_queued()

    def _make_queued(self) -> None:
        """Makes graphs until none is queued."""
        while len(self._queue):
            taken = self._next()
            self._on_change()
            if taken is not None:
                self._make_ready(taken)

    def _make_ready(self, graph: Graph) -> None:
        if graph.program is None:
            raise TypeError(f"{graph.signature} has no program")
        builder = self._make_builder(graph.program)
        try:
            enter_thread()
            started = self.tracer.trace(builder, graph.begun)
            traced = time.monotonic()
            if graph.program.traces:
                graph.trace_seconds += traced - started
            self._moved(graph, GraphState.COMPILING)
            loaded = builder.compile()
        # Whatever TensorFlow raises, the thread must survive and report it to requests.
        except Exception as error:
            pause = min(LAST_RETRY, FIRST_RETRY * 2**graph.failures)
            graph.fail(error, pause)
            # Before anybody can see that it failed, so that its reason stands above what follows.
            log.exception("graph failed", graph=str(graph.signature), retry_seconds=pause)
            self._moved(graph, GraphState.FAILED)
            with self._lock:
                self._forget_failed(graph.signature.model)
        else:
            seconds = time.monotonic() - started
            graph.error = graph.lacked = ""
            # Loaded graphs count too: their original times say what the cache saves.
            graph.make_seconds = builder.spared_seconds + (0.0 if loaded else seconds)
            with self._lock:
                self._costs.compiled(graph.signature, graph.make_seconds)
                estimate = self._costs.compile_seconds(graph.signature)
                self._forecast.record(estimate=estimate, seconds=time.monotonic() - graph.begun)
            if loaded:
                graph.loads += 1
                graph.load_seconds += seconds
            else:
                graph.compiles += 1
                graph.compile_seconds.observe(time.monotonic() - traced)
                if graph.program.traces:
                    self._recorder.compiled(graph.signature, seconds)
            log.info(
                "graph ready",
                graph=str(graph.signature),
                result="loaded" if loaded else "compiled",
                seconds=round(seconds, 3),
                trace_seconds=round(graph.trace_seconds, 3),
            )
            self._forget_savings(graph.signature)
            self._count_maps()
            self._moved(graph, GraphState.READY)

    def _count_maps(self) -> None:
        before = self._maps
        # What was counted last still holds, as maps are never freed.
        with contextlib.suppress(OSError):
            self._maps = memory_maps()
        if self._maps.spent and not before.spent:
            log.warning(
                "no more graphs are compiled: restart the worker",
                memory_maps=self._maps.used,
                max_map_count=self._maps.limit,
            )

    def _forget_savings(self, ready: Signature) -> None:
        """Resets the savings of a lattice's graphs when one of them becomes ready."""
        for graph in self.graphs():
            if graph.signature.lattice == ready.lattice:
                graph.would_save = DecayingSum()

    def _moved(self, graph: Graph, state: GraphState) -> None:
        with self._work_there:
            self._move(graph, state)
            self._work_there.notify_all()
        self._on_change()

    @staticmethod
    def _move(graph: Graph, state: GraphState) -> None:
        graph.state, graph.since = state, time.monotonic()
