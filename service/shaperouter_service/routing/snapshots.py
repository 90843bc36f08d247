"""Snapshots of workers: the state of their models, graphs, lanes and budgets at one moment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from shaperouter_service.routing.deployments import Deployment, RevisionReport
from shaperouter_service.routing.served_model import ServedModel
from shaperouter_service.routing.signatures import Signature


class CompileMode(StrEnum):
    """When a worker compiles; see `CompileMode` in worker.proto."""

    LAZY = "lazy"
    WARM = "warm"
    FROZEN = "frozen"


class GraphState(StrEnum):
    """The state of a graph.

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
        """Whether it will become ready without another request."""
        return self in (GraphState.QUEUED, GraphState.TRACING, GraphState.COMPILING)


@dataclass(frozen=True, slots=True)
class Histogram:
    """Observed durations in seconds.

    Attributes:
        bounds: Upper bounds of the buckets, ascending; the last bucket has none.
        counts: Observations in each bucket, not cumulative.
        sum: Sum of all observations.
    """

    bounds: Sequence[float] = ()
    counts: Sequence[int] = ()
    sum: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphReport:
    """One signature on one worker. Counts start at 0 when the worker starts.

    Times are in seconds. Counts called recent halve every week.

    Attributes:
        signature: Its shape.
        worker: Name of the worker.
        state: Its present state.
        traces: Number of times it was traced.
        compiles: Number of times it was compiled successfully.
        loads: Number of times it was loaded from the cache on disk.
        failures: Number of times that tracing or compiling it failed.
        trace_seconds: Time spent tracing.
        compile_seconds: Time of each successful compilation.
        load_seconds: Time of the loads.
        make_seconds: Time from cold to ready without a cache; 0 until known.
        stall_seconds: Seconds that requests waited for it.
        device_seconds: Device time of each call that served requests, by the device's own clock if
            it has one.
        overhead_seconds: Time of these calls beyond that; None if the device has no clock of its
            own.
        error: Why it failed or, if it is cold, why it was refused when its turn came.
        step_seconds: Time of one step or piece by the host's clock, the median of the newest; 0
            before there are enough.
        missed_seconds: Device time lost because it was missing.
        recent_missed_seconds: The recent part of that.
        would_save_seconds: Recent device time that it would have saved since a graph of its lattice
            last became ready.
        recent_served_seconds: Recent device time of calls that served requests.
        padded_seconds: Device time spent on padding that a smaller graph would have avoided.
        state_seconds: Time since its state changed.
        retry_seconds: Time until it may be tried again; only for failed graphs.
        left_seconds: Expected time until it is ready; 0 unless it is on the way.
        before_ready: Whether the worker makes it before it is ready to serve.
    """

    signature: Signature
    worker: str
    state: GraphState
    traces: int = 0
    compiles: int = 0
    loads: int = 0
    failures: int = 0
    trace_seconds: float = 0.0
    compile_seconds: Histogram = Histogram()
    load_seconds: float = 0.0
    make_seconds: float = 0.0
    stall_seconds: Histogram = Histogram()
    device_seconds: Histogram = Histogram()
    overhead_seconds: float | None = None
    error: str = ""
    step_seconds: float = 0.0
    missed_seconds: float = 0.0
    recent_missed_seconds: float = 0.0
    would_save_seconds: float = 0.0
    recent_served_seconds: float = 0.0
    padded_seconds: float = 0.0
    state_seconds: float = 0.0
    retry_seconds: float = 0.0
    left_seconds: float = 0.0
    before_ready: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneReport:
    """The load of a lane, and the padding that its graphs have computed.

    Attributes:
        model: Name of the model.
        beams: Beam width.
        active_slots: Number of slots in use.
        total_slots: Number of slots.
        queued: Number of requests that wait for a slot.
        backlog_tokens: Tokens that its requests are still expected to generate.
        backlog_prompts: Number of prompts that are still to be read.
        backlog_prompt_tokens: Tokens of these prompts.
        backlog_sources: Number of sources that are still to be read.
        backlog_source_tokens: Positions of these sources.
        encode_padding_tokens: Positions of padding that encode graphs have computed.
        prefill_padding_tokens: Tokens of padding that prefill graphs have computed.
        decode_padding_tokens: Rows without a slot that decode graphs have computed, once a step.
        align_padding_tokens: Tokens of padding that align graphs have computed.
        score_padding_tokens: Tokens of padding that score graphs have computed.
        proposed_tokens: Proposed tokens that decode graphs have checked.
        accepted_tokens: Number of these that were accepted.
        draft_proposed_tokens: Number of `proposed_tokens` that a draft model proposed.
        draft_accepted_tokens: Number of these that were accepted.
    """

    model: str
    beams: int
    active_slots: int = 0
    total_slots: int = 0
    queued: int = 0
    backlog_tokens: int = 0
    backlog_prompts: int = 0
    backlog_prompt_tokens: int = 0
    backlog_sources: int = 0
    backlog_source_tokens: int = 0
    encode_padding_tokens: int = 0
    prefill_padding_tokens: int = 0
    decode_padding_tokens: int = 0
    align_padding_tokens: int = 0
    score_padding_tokens: int = 0
    proposed_tokens: int = 0
    accepted_tokens: int = 0
    draft_proposed_tokens: int = 0
    draft_accepted_tokens: int = 0

    def joined(self, *, tokens: int, prompt_tokens: int, source_tokens: int) -> "LaneReport":
        """The lane with one more request."""
        free = self.active_slots < self.total_slots
        return replace(
            self,
            active_slots=self.active_slots + free,
            queued=self.queued + (not free),
            backlog_tokens=self.backlog_tokens + tokens,
            backlog_prompts=self.backlog_prompts + (prompt_tokens > 0),
            backlog_prompt_tokens=self.backlog_prompt_tokens + prompt_tokens,
            backlog_sources=self.backlog_sources + (source_tokens > 0),
            backlog_source_tokens=self.backlog_source_tokens + source_tokens,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CallQueueReport:
    """The load of a model that answers once, and the padding that its graphs have computed.

    Attributes:
        model: Name of the model.
        calls: Number of calls that wait or are being computed.
        rows: Rows of these calls.
        elements: Rows times the product of the sizes of the other axes, summed over these calls.
        padding_elements: Elements of padding that its graphs have computed, counted likewise.
        padding_checks: Number of calls that were repeated exactly, to check the padding.
        padding_differences: Number of these whose answer differed from the one that was sent.
    """

    model: str
    calls: int = 0
    rows: int = 0
    elements: int = 0
    padding_elements: int = 0
    padding_checks: int = 0
    padding_differences: int = 0

    def joined(self, *, rows: int, elements: int) -> "CallQueueReport":
        """The queue with one more call."""
        return replace(
            self,
            calls=self.calls + 1,
            rows=self.rows + rows,
            elements=self.elements + elements,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixReport:
    """The cached prefixes of a model on a worker.

    Attributes:
        model: Name of the model.
        bytes: Their memory.
        hit_tokens: Tokens that were copied instead of read.
        evictions: Blocks that were evicted.
        blocks: Digests of the blocks that were used last; see `routing.prefixes`.
    """

    model: str
    bytes: int = 0
    hit_tokens: int = 0
    evictions: int = 0
    blocks: Sequence[int] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetReport:
    """What a worker may compile.

    Attributes:
        mode: Its compile mode.
        room: Number of graphs that it may still make, not counting the first graphs.
        max_graphs: Maximum number of graphs that are ready or on the way.
        memory_bytes: Memory that the process uses.
        max_memory_bytes: Memory above which it compiles nothing more; 0 means no limit.
        threads: Number of compilations that may run at a time.
        exhausted: Whether a limit keeps it from compiling signatures that are worth it.
    """

    mode: CompileMode = CompileMode.LAZY
    room: int = 0
    max_graphs: int = 0
    memory_bytes: int = 0
    max_memory_bytes: int = 0
    threads: int = 0
    exhausted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTimes:
    """Seconds of each phase of a worker's start; None until the phase has ended.

    Attributes:
        import_seconds: From the start of the process until its code was imported.
        weights_seconds: Until the weights of all models were on the device.
        first_cover_seconds: Until graphs that cover every request without beam search were ready.
        warm_seconds: Until all graphs were compiled that the worker needs to be ready.
    """

    import_seconds: float | None = None
    weights_seconds: float | None = None
    first_cover_seconds: float | None = None
    warm_seconds: float | None = None


class WorkerId(NamedTuple):
    """One process of a worker. Its successor, with the same name, may run at the same time.

    Attributes:
        name: Name of the worker.
        incarnation: Identifies the process.
    """

    name: str
    incarnation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A worker's whole state. Counts start at 0 when the worker starts.

    Attributes:
        worker: Name of the worker, the same after restarts.
        incarnation: Identifies the process.
        device: The device that it computes on, e.g. `CPU:0`.
        models: The models that it has loaded.
        graphs: Every graph that was ever requested.
        lanes: Its lanes.
        call_queues: Its queues of calls, one for each model that answers once.
        prefixes: The cached prefixes, one entry for each decoder-only model.
        compile_queue_depth: Number of signatures that wait for a compile thread.
        warm: Whether it has made all graphs that must exist before readiness.
        budget: What it may compile.
        start: Duration of each phase of its start.
        deployments: The newest deployments that routers have told it.
        revisions: The revisions that it should load, with their states.
    """

    worker: str
    incarnation: str
    device: str = ""
    models: Sequence[ServedModel] = ()
    graphs: Sequence[GraphReport] = ()
    lanes: Sequence[LaneReport] = ()
    call_queues: Sequence[CallQueueReport] = ()
    prefixes: Sequence[PrefixReport] = ()
    compile_queue_depth: int = 0
    warm: bool = False
    budget: BudgetReport = BudgetReport()
    start: StartTimes = StartTimes()
    deployments: Sequence[Deployment] = ()
    revisions: Sequence[RevisionReport] = ()

    @property
    def worker_id(self) -> WorkerId:
        """The process that sent it."""
        return WorkerId(self.worker, self.incarnation)


def active_workers(snapshots: Mapping[WorkerId, Snapshot]) -> dict[str, WorkerId]:
    """The process of each worker that gets requests, by name.

    While a successor runs beside the process that it replaces, the older one gets requests until it
    drains, because the younger one may still have to make some of its graphs.

    Args:
        snapshots: Snapshots of the connected processes, in the order in which they connected.
    """
    found: dict[str, WorkerId] = {}
    for process, snapshot in snapshots.items():
        older = found.get(process.name)
        if older is None or (snapshot.warm and not snapshots[older].warm):
            found[process.name] = process
    return found
