"""The table of a worker's graphs: finds covers, and compiles what is missing in the background."""

import itertools
import queue
import threading
import time
from collections.abc import Callable
from typing import Final

import structlog

from shaperouter_service.decoding.program import Program
from shaperouter_service.graphs.graph import Graph, GraphState
from shaperouter_service.graphs.making import Making
from shaperouter_service.routing.signatures import GraphKind, Signature

# XLA's recursive passes overflow the usual 8 MB of stack on large graphs.
COMPILE_STACK_BYTES = 64 * 1024 * 1024

log = structlog.get_logger(__name__)


class NoCover:
    """The answer when no ready graph covers a signature."""


NO_COVER: Final = NoCover()


class GraphTable:
    """Every graph of one worker.

    A signature has at most one graph, and a graph is traced and compiled once, by one of the
    compile threads: signatures that a request is waiting for first, in order of asking otherwise.
    All methods may be called from any thread.
    """

    def __init__(
        self,
        build: Callable[[Signature], Program],
        *,
        threads: int,
        on_change: Callable[[], None],
        making: Callable[[Program], Making] = Making,
    ) -> None:
        """Starts the compile threads.

        Args:
            build: Makes the untraced program of a signature.
            threads: Compilations at a time.
            on_change: Called from a compile thread after each change of a graph's state.
            making: How a program is made ready.
        """
        self._build = build
        self._making = making
        self._on_change = on_change
        self._lock = threading.Lock()
        # Tracing is Python code. Two traces at a time would pass the interpreter to and fro, and
        # each take longer than both in turn.
        self._tracing = threading.Lock()
        self._graphs: dict[Signature, Graph] = {}
        # (0 if urgent, order of asking, graph)
        self._wanted: queue.PriorityQueue[tuple[int, int, Graph]] = queue.PriorityQueue()
        self._order = itertools.count()
        self._urgent: set[Signature] = set()
        self._started: set[Signature] = set()
        default_stack = threading.stack_size(COMPILE_STACK_BYTES)
        for index in range(threads):
            threading.Thread(target=self._work, name=f"compile-{index}", daemon=True).start()
        threading.stack_size(default_stack)

    def want(self, signature: Signature, *, urgent: bool) -> Graph:
        """Returns the graph of a signature, and has it compiled if nobody has asked for it yet.

        Args:
            signature: The shape.
            urgent: A request is waiting for it: it goes before those that are not.
        """
        with self._lock:
            graph = self._graphs.get(signature)
            if graph is None:
                graph = self._graphs[signature] = Graph(signature, self._build(signature))
                self._enqueue(graph, urgent)
            elif urgent and signature not in self._urgent and signature not in self._started:
                # Queued once more, further ahead; the later entry finds it started.
                self._enqueue(graph, urgent)
            return graph

    def cover(self, signature: Signature) -> Graph | NoCover:
        """Returns the cheapest ready graph that covers a signature."""
        covers = [
            graph
            for graph in self.ready(signature.model, signature.kind, signature.beams)
            if graph.signature.covers(signature)
        ]
        return covers[0] if covers else NO_COVER

    def ready(self, model: str, kind: GraphKind, beams: int) -> list[Graph]:
        """Returns the ready graphs of a kind and beam width, from cheap to dear."""
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
        """Returns every graph that was ever asked for."""
        with self._lock:
            return list(self._graphs.values())

    @property
    def queue_depth(self) -> int:
        """Signatures that wait for a compile thread."""
        with self._lock:
            return len(self._graphs) - len(self._started)

    def _enqueue(self, graph: Graph, urgent: bool) -> None:
        if urgent:
            self._urgent.add(graph.signature)
        self._wanted.put((0 if urgent else 1, next(self._order), graph))

    def _work(self) -> None:
        while True:
            _, _, graph = self._wanted.get()
            with self._lock:
                if graph.signature in self._started:
                    continue
                self._started.add(graph.signature)
            self._make_ready(graph)

    def _make_ready(self, graph: Graph) -> None:
        making = self._making(graph.program)
        try:
            with self._tracing:
                started = time.monotonic()
                making.trace()
                traced = time.monotonic()
            if graph.program.traces:
                graph.trace_seconds = traced - started
            self._move(graph, GraphState.COMPILING)
            loaded = making.compile()
        # Whatever TensorFlow raises, the thread must live on and requests must learn of it.
        except Exception as error:
            graph.failures += 1
            graph.error = str(error) or type(error).__name__
            log.exception("graph failed", graph=str(graph.signature))
            self._move(graph, GraphState.FAILED)
        else:
            seconds = time.monotonic() - started - graph.trace_seconds
            if loaded:
                graph.loads += 1
                graph.load_seconds += seconds
            else:
                graph.compiles += 1
                graph.compile_seconds.observe(seconds)
            log.info(
                "graph ready",
                graph=str(graph.signature),
                result="loaded" if loaded else "compiled",
                trace_seconds=round(graph.trace_seconds, 3),
                **{"load_seconds" if loaded else "compile_seconds": round(seconds, 3)},
            )
            self._move(graph, GraphState.READY)

    def _move(self, graph: Graph, state: GraphState) -> None:
        graph.state = state
        self._on_change()
