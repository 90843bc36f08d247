"""A worker as routing sees it: its graphs, its lanes and what they cost, at one moment."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from shaperouter_service.routing.costs import Costs, cheapest
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.routing.signatures import GraphKind, Signature


class GraphState(StrEnum):
    """Where a graph is in its life.

    ::

        COLD ⇄ QUEUED → TRACING → COMPILING → READY
                  ↑        └─────────┴──→ FAILED
                  └─────── after a pause ────┘
    """

    COLD = "cold"
    QUEUED = "queued"
    TRACING = "tracing"
    COMPILING = "compiling"
    READY = "ready"
    FAILED = "failed"

    @property
    def on_the_way(self) -> bool:
        """Whether it will be ready without anybody asking again."""
        return self in (GraphState.QUEUED, GraphState.TRACING, GraphState.COMPILING)


@dataclass(frozen=True, kw_only=True)
class GraphView:
    """A graph of a worker.

    Attributes:
        signature: Its shape.
        state: Where it is in its life.
        missed_seconds: Device time that its absence has cost, faded.
        would_save_seconds: Device time that it would have saved since a graph of its lattice was
            last made ready, faded.
        served_seconds: Device time of the calls that served requests, faded.
        ready_at: When it is expected to be ready, on the reader's monotonic clock in seconds; only
            of graphs that are on the way.
        retry_at: Until when it is not tried again; only of failed graphs.
        refused: Why it was not made when its turn came; only of cold graphs.
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
class LaneView:
    """The load of a lane.

    Attributes:
        active: Slots in use.
        slots: Slots in all.
        queued: Requests that wait for one.
        tokens: That its requests are still to make at most, those waiting included.
        prompts: That are still to be read, those of requests that wait included.
        prompt_tokens: Of these prompts.
        sources: That are still to be read, likewise.
        source_tokens: Places of these sources.
    """

    active: int
    slots: int
    queued: int
    tokens: int
    prompts: int
    prompt_tokens: int
    sources: int = 0
    source_tokens: int = 0

    def joined(self, *, tokens: int, prompt_tokens: int, source_tokens: int) -> "LaneView":
        """The lane with one more request."""
        free = self.active < self.slots
        return LaneView(
            active=self.active + free,
            slots=self.slots,
            queued=self.queued + (not free),
            tokens=self.tokens + tokens,
            prompts=self.prompts + (prompt_tokens > 0),
            prompt_tokens=self.prompt_tokens + prompt_tokens,
            sources=self.sources + (source_tokens > 0),
            source_tokens=self.source_tokens + source_tokens,
        )


@dataclass(frozen=True, kw_only=True)
class WorkerView:
    """A worker.

    What depends on its graphs and their costs alone is found out once for all requests, and all
    views that differ in their lanes.

    Attributes:
        name: Its name.
        ladders: Of each model it has.
        lanes: By model and beam width.
        graphs: That somebody has asked for, or that would have saved something.
        costs: Of graphs.
        compile_threads: Compilations at a time.
        room: Graphs that it may still make, besides the first ones.
        exhausted: Whether it is at a limit with graphs that are worth making.
        compiles: Whether it makes any that traffic asks for.
        warm: Whether it has made what it makes before anybody asks.
    """

    name: str
    ladders: Mapping[str, Ladders]
    lanes: Mapping[tuple[str, int], LaneView]
    graphs: Mapping[Signature, GraphView]
    costs: Costs
    compile_threads: int = 1
    room: int
    exhausted: bool = False
    compiles: bool = True
    warm: bool = True
    _ready: dict[tuple[str, GraphKind, int], list[Signature]] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )
    _cheapest: dict[tuple[Signature, int], Signature | None] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    def joined(
        self, model: str, beams: int, *, tokens: int, prompt_tokens: int, source_tokens: int
    ) -> "WorkerView":
        """The worker with one more request in a lane; see `LaneView.joined`."""
        lane = self.lanes[model, beams].joined(
            tokens=tokens, prompt_tokens=prompt_tokens, source_tokens=source_tokens
        )
        # Not by dataclasses.replace, which forgets what was found out.
        joined = copy.copy(self)
        object.__setattr__(joined, "lanes", {**self.lanes, (model, beams): lane})
        return joined

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
        """The ready cover that serves some runs in the least time; see `costs.cheapest`.

        Args:
            tight: What must be covered.
            runs: That are served in turn where a graph has too few rows.
        """
        if (tight, runs) not in self._cheapest:
            ready = self.ready(tight.model, tight.kind, tight.beams)
            covers = [signature for signature in ready if signature.covers(tight)]
            self._cheapest[tight, runs] = cheapest(covers, runs, self.costs)
        return self._cheapest[tight, runs]

    def state(self, signature: Signature) -> GraphState:
        """Where a graph is in its life."""
        graph = self.graphs.get(signature)
        return GraphState.COLD if graph is None else graph.state

    def ready_at(self, signature: Signature, now: float) -> float:
        """When a graph would be ready if it were asked for now, at the latest now."""
        graph = self.graphs.get(signature)
        if graph is not None and graph.state is GraphState.READY:
            return now
        if graph is not None and graph.state.on_the_way:
            return max(now, graph.ready_at)
        waiting = sum(1 for other in self.graphs.values() if other.state.on_the_way)
        rounds = 1 + waiting // self.compile_threads
        start = now if graph is None else max(now, graph.retry_at)
        return start + rounds * self.costs.compile_seconds(signature)

    def busy_lanes(self, besides: tuple[str, int]) -> Iterator[LaneView]:
        """The other lanes that share the device now."""
        return (lane for key, lane in self.lanes.items() if key != besides and lane.active)
