"""A worker as routing sees it: its graphs, lanes and costs at one moment."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shaperouter_service.routing.call_ladders import CallLadders
from shaperouter_service.routing.costs import Costs, cheapest
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.routing.signatures import GraphKind, Signature
from shaperouter_service.routing.snapshots import CallQueueReport, GraphState, LaneReport


@dataclass(frozen=True, kw_only=True)
class GraphView:
    """A graph of a worker.

    Attributes:
        signature: Its shape.
        state: Its present state.
        missed_seconds: Device time lost because it was missing, decayed.
        would_save_seconds: Device time that it would have saved since a graph of its lattice last
            became ready, decayed.
        served_seconds: Device time of the calls that served requests, decayed.
        ready_at: Expected time when it is ready, on the reader's monotonic clock in seconds; only
            for graphs on the way.
        retry_at: Time before which it is not tried again; only for failed graphs.
        refused: Why it was not made when its turn came; only for cold graphs.
    """

    signature: Signature
    state: GraphState
    missed_seconds: float = 0.0
    would_save_seconds: float = 0.0
    served_seconds: float = 0.0
    ready_at: float = 0.0
    retry_at: float = 0.0
    refused: str = ""


@dataclass(frozen=True, kw_only=True)
class WorkerView:
    """A worker's state for routing.

    Values that depend only on its graphs and their costs are computed once, for all requests and
    for all views that differ only in their lanes.

    Attributes:
        name: Name of the worker.
        ladders: Ladders of each model that it has and that generates tokens.
        calls: Ladders of each model that it has and that answers once.
        digests: Digest of the files of each model that it has; empty if it does not tell.
        lanes: Lanes by model and beam width.
        call_queues: Queues of calls by model.
        graphs: Graphs that were requested, or that would have saved something.
        costs: Costs of graphs.
        compile_threads: Number of compilations that may run at a time.
        room: Number of graphs that it may still compile, in addition to the first graphs.
        exhausted: Whether it is at a limit although graphs are worth making.
        compiles: Whether it compiles graphs that traffic justifies.
        warm: Whether it has made all graphs that must exist before readiness.
        memory_bytes: Memory of its process.
        prefixes: Digests of the blocks of sequences that it keeps, by model; see `prefixes`.
    """

    name: str
    ladders: Mapping[str, Ladders]
    lanes: Mapping[tuple[str, int], LaneReport]
    calls: Mapping[str, CallLadders] = field(default_factory=dict)
    digests: Mapping[str, str] = field(default_factory=dict)
    call_queues: Mapping[str, CallQueueReport] = field(default_factory=dict)
    graphs: Mapping[Signature, GraphView]
    costs: Costs
    compile_threads: int = 1
    room: int
    exhausted: bool = False
    compiles: bool = True
    warm: bool = True
    memory_bytes: int = 0
    prefixes: Mapping[str, frozenset[int]] = field(default_factory=dict)
    _ready: dict[tuple[str, GraphKind, int], list[Signature]] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )
    # Device times of a step on the ready covers of a signature.
    _covers: dict[Signature, Mapping[Signature, float]] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )
    _cheapest: dict[tuple[Signature, int], Signature | None] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    def joined(
        self, model: str, beams: int, *, tokens: int, prompt_tokens: int, source_tokens: int
    ) -> "WorkerView":
        """The worker with one more request in a lane; see `LaneReport.joined`."""
        lane = self.lanes[model, beams].joined(
            tokens=tokens, prompt_tokens=prompt_tokens, source_tokens=source_tokens
        )
        # dataclasses.replace would drop the cached values.
        joined = copy.copy(self)
        object.__setattr__(joined, "lanes", {**self.lanes, (model, beams): lane})
        return joined

    def joined_call(self, model: str, *, rows: int, elements: int) -> "WorkerView":
        """The worker with one more call of a model; see `CallQueueReport.joined`."""
        queue = self.call_queue(model).joined(rows=rows, elements=elements)
        joined = copy.copy(self)
        object.__setattr__(joined, "call_queues", {**self.call_queues, model: queue})
        return joined

    def call_queue(self, model: str) -> CallQueueReport:
        """The load of a model that answers once."""
        return self.call_queues.get(model) or CallQueueReport(model=model)

    def has(self, model: str) -> bool:
        """Whether it has a model."""
        return model in self.ladders or model in self.calls

    def ready(self, model: str, kind: GraphKind, beams: int) -> Sequence[Signature]:
        """The ready graphs of a kind and beam width."""
        key = model, kind, beams
        if key not in self._ready:
            self._ready[key] = [
                signature
                for signature, graph in self.graphs.items()
                if graph.state is GraphState.READY
                and (signature.model, signature.kind, signature.beams) == key
            ]
        return self._ready[key]

    def cheapest(self, tight: Signature, runs: int) -> Signature | None:
        """The ready cover that serves `runs` runs in the least time; see `costs.cheapest`.

        Args:
            tight: The signature to cover.
            runs: Number of runs; a graph with fewer rows serves them in turn.
        """
        if (tight, runs) not in self._cheapest:
            if tight not in self._covers:
                ready = self.ready(tight.model, tight.kind, tight.beams)
                covers = [signature for signature in ready if signature.covers(tight)]
                self._covers[tight] = self.costs.sound(covers)
            self._cheapest[tight, runs] = cheapest(self._covers[tight], runs)
        return self._cheapest[tight, runs]

    def state(self, signature: Signature) -> GraphState:
        """The present state of a graph."""
        graph = self.graphs.get(signature)
        return GraphState.COLD if graph is None else graph.state

    def ready_at(self, signature: Signature, now: float) -> float:
        """When a graph would be ready if it were requested now."""
        graph = self.graphs.get(signature)
        if graph is not None and graph.state is GraphState.READY:
            return now
        if graph is not None and graph.state.on_the_way:
            return max(now, graph.ready_at)
        # It begins when a thread is free, behind all that are on the way.
        ends = sorted(each.ready_at for each in self.graphs.values() if each.state.on_the_way)
        start = ends[-self.compile_threads] if len(ends) >= self.compile_threads else now
        if graph is not None:
            start = max(start, graph.retry_at)
        return max(now, start) + self.costs.compile_seconds(signature)

    def busy(self, besides: tuple[str, int]) -> int:
        """Number of other lanes and queues of calls that use the device now.

        Args:
            besides: A lane, or a model that answers once and 0.
        """
        lanes = sum(1 for key, lane in self.lanes.items() if key != besides and lane.active_slots)
        queues = self.call_queues.items()
        return lanes + sum(1 for model, queue in queues if (model, 0) != besides and queue.calls)
