"""A simulated worker: the product's scheduler and table of graphs, on a device that takes time.

It has one model and the lane without beam search, which all its requests use.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from shaperouter_service.decoding import DecodeProgram, Shape
from shaperouter_service.errors import GraphRefusedError
from shaperouter_service.generation.run_events import FinishReason, NewTokens
from shaperouter_service.graphs import Graph, GraphTable
from shaperouter_service.graphs.budget import CompileBudget
from shaperouter_service.routing.costs import Costs
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.routing.signatures import GraphKind, Signature
from shaperouter_service.routing.snapshots import BudgetReport, CompileMode, GraphState, Snapshot
from shaperouter_service.traffic_record import TrafficRecorder
from shaperouter_service.worker.input_reader import EncodedSources
from shaperouter_service.worker.prefix_cache import PrefixCache
from shaperouter_service.worker.run import Ended, Phase, Run, in_phase
from shaperouter_service.worker.scheduler import LaneScheduler
from shaperouter_service.worker.server import WATCH_INTERVAL
from shaperouter_service.worker.snapshot import report_graph, report_lane

from .clock import Clock
from .costs import MeasuredCosts

MAX_GRAPHS, QUEUE_LIMIT = 200, 256
# Time of a graph's load from the compile cache; see `make bench-restart`.
LOAD_SECONDS = 0.07


@dataclass(eq=False)
class SimulatedBatch:
    """Rows that a graph advances together; moving between batches is part of `call_seconds`."""

    shape: Shape
    caches: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(bytes=0))


class SimulatedProgram(DecodeProgram):
    """The facts about a program that the scheduler needs. It has no TensorFlow function."""

    def __init__(self, signature: Signature) -> None:
        self.rows, self.beams, self.length = signature.rows, signature.beams, signature.length
        self.source_length = 0
        self.traces = 0
        # It has no clock of its own.
        self.device_seconds = None


class SimulatedGraphs(GraphTable):
    """The table, whose compile thread is simulated."""

    def __init__(
        self,
        clock: Clock,
        costs: MeasuredCosts,
        ladders: Ladders,
        recorder: TrafficRecorder,
        on_change: Callable[[], None],
    ) -> None:
        self._clock, self._seconds = clock, costs.compile_seconds
        self._making = 0
        # By kind; the product sorts for each call, which thousands of workers would notice.
        self._ready_of: dict[GraphKind, list[Graph]] = {}
        self._sound_of: dict[GraphKind, list[float]] = {}
        super().__init__(
            SimulatedProgram,
            costs=Costs({costs.model: costs.dimensions}),
            recorder=recorder,
            budget=CompileBudget(
                mode=CompileMode.LAZY, max_graphs=MAX_GRAPHS, first=ladders.first(costs.model)
            ),
            threads=1,
            on_change=on_change,
            make_builder=lambda _: None,
        )

    def _start_threads(self, count: int, work: Callable[[], None]) -> None:
        """Starts no thread; `compile` does the work."""

    def request_compile(self, signature: Signature, *, urgent: bool) -> Graph:
        graph = super().request_compile(signature, urgent=urgent)
        self._compile_next()
        return graph

    def _compile_next(self) -> None:
        if self._making or not self._queued or (taken := self._next()) is None:
            return
        self._making += 1
        self._clock.after(self._seconds, lambda: self._made(taken))

    def _made(self, graph: Graph) -> None:
        self._making -= 1
        graph.compiles += 1
        self.put_ready(graph)
        self._compile_next()

    def put_ready(self, graph: Graph) -> None:
        """Makes a graph ready at once."""
        if graph.program is None:
            graph.program = SimulatedProgram(graph.signature)
        graph.make_seconds = self._seconds
        self._costs.compiled(graph.signature, self._seconds)
        self._forget_savings(graph.signature)
        self._moved(graph, GraphState.READY)
        self._ready_of.clear()
        self._sound_of.clear()

    def ready(self, model: str, kind: GraphKind, beams: int) -> list[Graph]:
        if kind not in self._ready_of:
            self._ready_of[kind] = super().ready(model, kind, beams)
        return self._ready_of[kind]

    def sound_seconds(self, graphs: Sequence[Graph]) -> list[float]:
        kind = graphs[0].signature.kind if graphs else GraphKind.DECODE
        if len(graphs) != len(self._ready_of.get(kind, ())):
            return super().sound_seconds(graphs)
        if kind not in self._sound_of:
            self._sound_of[kind] = super().sound_seconds(graphs)
        return self._sound_of[kind]

    def record(self, graph: Graph, seconds: float, steps: int | None = None) -> None:
        before = graph.best_step_seconds
        super().record(graph, seconds, steps)
        if graph.best_step_seconds != before:
            self._sound_of.pop(graph.signature.kind, None)


class SimulatedReader:
    """Reads prompts as `InputReader` does, with the lane's covers."""

    def __init__(self, lane: "SimulatedLane") -> None:
        self._lane = lane
        self._left = 0
        self._runs: list[Run] = []
        self._graph: Graph | None = None
        self._asked: tuple[Signature, float] | None = None
        self.encode_padding_tokens = self.align_padding_tokens = self.score_padding_tokens = 0
        self.prefill_padding_tokens = 0

    @property
    def half_read(self) -> Sequence[Run]:
        return self._runs

    def drop_cancelled(self) -> None:
        """Nobody cancels in the simulation."""

    reuse_sources = keep_source = lambda self, _: None

    def read(self, runs: Sequence[Run]) -> float | None:
        lane, covers = self._lane, self._lane.covers
        if not self._runs:
            waiting = in_phase(runs, Phase.PREFILL)
            if not waiting:
                return None
            same_length = covers.of_same_length(waiting, covers.tight_prefill)
            together = covers.tight_prefill(same_length)
            self._runs = same_length[: covers.max_rows(together)]
            graph = lane.graphs.cover(covers.tight_prefill(self._runs))
            assert isinstance(graph, Graph)
            self._graph = graph
            self._asked = together, len(self._runs) / len(same_length)
            self._left = max(run.read_tokens for run in self._runs)
            batch = SimulatedBatch(graph.program.shape)  # type: ignore[union-attr]
            for run in self._runs:
                run.batch = batch  # type: ignore[assignment]
        assert self._graph is not None
        assert self._asked is not None
        piece = min(lane.ladders.prefill_piece, self._graph.signature.length)
        seconds = lane.spend(self._graph, 1)
        lane.graphs.record(self._graph, seconds, steps=1)
        together, share = self._asked
        covers.record_missed_savings(together, self._graph, seconds, share=share)
        self.prefill_padding_tokens += self._graph.signature.rows * piece
        self._left -= piece
        for run in self._runs:
            run.padded_prompt_tokens += piece
        if self._left <= 0:
            self.prefill_padding_tokens -= sum(run.read_tokens for run in self._runs)
            for run in self._runs:
                run.phase = Phase.DECODE
            self._runs = []
        return seconds


class SimulatedLane(LaneScheduler):
    """The scheduler; only the calls of graphs are simulated."""

    def __init__(
        self,
        clock: Clock,
        costs: MeasuredCosts,
        ladders: Ladders,
        *,
        device: Costs,
        graphs: SimulatedGraphs,
        recorder: TrafficRecorder,
    ) -> None:
        super().__init__(
            # The scheduler asks a model for nothing else, and a real one has weights.
            SimpleNamespace(  # type: ignore[arg-type]
                name=costs.model, weights=SimpleNamespace(is_packed=False)
            ),
            ladders,
            graphs,
            beams=1,
            queue_limit=QUEUE_LIMIT,
            encoded=EncodedSources(),
            # Keeps nothing, so every prompt is read.
            prefixes=PrefixCache([costs.model], max_bytes=0),
            watchdog=None,  # type: ignore[arg-type]
            recorder=recorder,
        )
        self.graphs, self.device_seconds = graphs, 0.0
        self._costs, self._device = costs, device
        self._clock = clock
        self.reader = SimulatedReader(self)  # type: ignore[assignment]

    def spend(self, graph: Graph, steps: int, *, first: bool = False) -> float:
        """Lets the time of a call pass; returns its device time."""
        seconds = steps * self._device.step_seconds(graph.signature)
        if first:
            seconds = self._costs.first_token_seconds
        self._clock.elapse(seconds + self._costs.call_seconds)
        self.device_seconds += seconds
        return seconds

    def _call(self, runs: list[Run], asked: Signature, graph: Graph, *, share: float) -> None:
        fresh = [run for run in runs if run.generated == 0]
        advanced = fresh or runs
        program: Any = graph.program
        batch = SimulatedBatch(program.shape)
        for run in runs:
            run.batch = batch  # type: ignore[assignment]
        steps = 1 if fresh else self._steps(runs, graph, self._turn_seconds * share)
        # A run ends when it has generated its tokens; only the device knows how many.
        made = min(steps, max(run.options.makes - run.generated for run in advanced))
        began = self._clock()
        seconds = self.spend(graph, made, first=bool(fresh))
        self._graphs.record(graph, seconds, None if fresh else made)
        if not fresh:
            self.covers.record_missed_savings(asked, graph, seconds, share=share, steps=made)
            self.decode_padding_tokens += (graph.signature.rows - len(runs)) * made
        self.owed_seconds = max(0.0, self.owed_seconds - (self._clock() - began))
        for run in advanced:
            new = min(made, run.options.makes - run.generated)
            run.generated += new
            run.emit(NewTokens(token_ids=range(new), logprobs=()))
            if run.generated == run.options.makes:
                self._end(run, Ended(FinishReason.LENGTH), self._clock())


class SimulatedWorker:
    """A worker's process.

    Attributes:
        name: Its name.
        lane: Its scheduler.
        graphs: Its graphs.
    """

    def __init__(
        self,
        name: str,
        incarnation: str,
        clock: Clock,
        costs: MeasuredCosts,
        *,
        device: Costs,
        ladders: Ladders,
        cached: Sequence[Signature],
        on_snapshot: Callable[[Snapshot], None],
    ) -> None:
        """Starts warm.

        Args:
            name: Its name.
            incarnation: Identifies the process.
            clock: The simulated time.
            costs: What its work costs.
            device: `costs.device()`, which workers share.
            ladders: Its ladders.
            cached: Graphs that it finds in the compile cache, besides the first ones.
            on_snapshot: Takes its snapshots.
        """
        self.name, self._incarnation = name, incarnation
        self._clock, self._costs = clock, costs
        self._on_snapshot = on_snapshot
        self._is_alive, self._is_busy = True, False
        self._sends_at: float | None = None
        self._last_sent = -WATCH_INTERVAL
        self._model = costs.served(ladders)
        recorder = TrafficRecorder(None, {costs.model: ladders})
        self.graphs = SimulatedGraphs(clock, costs, ladders, recorder, self._graph_changed)
        self.lane = SimulatedLane(
            clock,
            costs,
            ladders,
            device=device,
            graphs=self.graphs,
            recorder=recorder,
        )
        first = [
            signature
            for signature in ladders.first(costs.model)
            if signature.beams == 1 and signature.kind is not GraphKind.SCORE
        ]
        for signature in dict.fromkeys([*first, *cached]):
            self.graphs.put_ready(self.graphs.graph(signature))

    def begin(self) -> None:
        """Sends the first snapshot."""
        self._changed()

    @property
    def ready(self) -> Sequence[Signature]:
        """The graphs that it has."""
        return [
            graph.signature for graph in self.graphs.graphs() if graph.state is GraphState.READY
        ]

    def submit(self, run: Run) -> None:
        """Takes a run.

        Raises:
            QueueFullError: Its queue is full.
        """
        self.lane.submit(run)
        self._changed()
        self._wake()

    def request_compile(self, signatures: Sequence[Signature]) -> None:
        """Makes graphs, in the background."""
        for signature in signatures:
            try:
                self.graphs.request_compile(signature, urgent=False)
            except GraphRefusedError:
                # The compile policy will ask another worker.
                continue

    def die(self) -> None:
        """Ends at once."""
        self._is_alive = False

    def _wake(self) -> None:
        if not self._is_busy and self._is_alive:
            self._is_busy = True
            # A turn lets time pass, which others do not see.
            self._clock.at(self._clock(), self._turn)

    def _turn(self) -> None:
        if self._is_alive and self.lane.turn():
            self._changed()
            self._clock.at(self._clock(), self._turn)
            return
        self._is_busy = False

    def _graph_changed(self) -> None:
        self._changed()
        self._clock.at(self._clock(), self._wake)

    def _changed(self) -> None:
        """Sends a snapshot soon, as the server's Watch does."""
        if self._sends_at is None and self._is_alive:
            self._sends_at = max(self._clock(), self._last_sent + WATCH_INTERVAL)
            self._clock.at(self._sends_at, self._send)

    def _send(self) -> None:
        self._sends_at, self._last_sent = None, self._clock()
        if self._is_alive:
            self._on_snapshot(self._snapshot())

    def _snapshot(self) -> Snapshot:
        left = self.graphs.left_seconds()
        return Snapshot(
            worker=self.name,
            incarnation=self._incarnation,
            models=[self._model],
            graphs=[
                report_graph(
                    graph,
                    self.name,
                    left_seconds=left.get(graph.signature, 0.0),
                    before_ready=False,
                )
                for graph in self.graphs.graphs()
            ],
            lanes=[report_lane(self.lane)],
            compile_queue_depth=self.graphs.queue_depth,
            warm=True,
            budget=BudgetReport(room=self.graphs.room, max_graphs=MAX_GRAPHS, threads=1),
        )
