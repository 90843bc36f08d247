"""Compiled graphs: what they cost and what they serve."""

import enum
from dataclasses import dataclass

from shaperouter._signature import Signature


class GraphState(enum.StrEnum):
    """The state of a graph."""

    COLD = "cold"  # no request has needed it
    QUEUED = "queued"  # it waits for a compile thread
    TRACING = "tracing"  # TensorFlow is tracing the model's code
    COMPILING = "compiling"  # XLA is compiling it
    READY = "ready"  # it can serve requests
    FAILED = "failed"  # tracing or compiling failed
    UNKNOWN = "unknown"  # a state that this version of the client does not know


@dataclass(frozen=True, kw_only=True)
class Histogram:
    """A histogram of observed durations.

    Attributes:
        bounds: Upper bounds of the buckets in seconds, ascending. The last bucket has none and is
            not listed.
        counts: Observations in each bucket, not cumulative; one more entry than `bounds`.
        sum: Sum of all observations in seconds.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float

    @property
    def count(self) -> int:
        """Number of observations."""
        return sum(self.counts)

    @property
    def mean(self) -> float | None:
        """Mean of the observations in seconds; None if there are none."""
        return self.sum / self.count if self.count else None


@dataclass(frozen=True, kw_only=True)
class Graph:
    """One signature on one worker. Counts start at 0 when the worker starts.

    Attributes:
        signature: The shape that the graph is compiled for.
        worker: Name of the worker.
        state: Its present state.
        traces: Number of times it was traced.
        compiles: Number of times it was compiled successfully.
        failures: Number of times that tracing or compiling it failed.
        trace_seconds: Time spent tracing, in seconds.
        compile_seconds: Time of each successful compilation, without tracing.
        stall_seconds: How long requests waited for its compilation.
        device_seconds: Device time of each call that served requests, by the device's own clock if
            it has one.
        error: Why it failed or, if it is cold, why it was refused when its turn came; otherwise
            empty.
        loads: Number of times it was loaded from the cache on disk instead of being compiled.
        load_seconds: Time of those loads, in seconds.
        step_seconds: Time of one step, or of one piece of prompts, in seconds, by the host's clock:
            the median of the newest; 0 until there are enough.
        missed_seconds: Device time lost because it was missing, in seconds: larger graphs ran in
            its place, or several in turn.
        padded_seconds: Device time that it spent on padding which a smaller graph would have
            avoided, in seconds.
        state_seconds: Time since its state changed, in seconds.
        retry_seconds: Time until it may be tried again, in seconds; only for failed graphs.
        left_seconds: Expected time until it is ready, in seconds; 0 unless it is queued, tracing or
            compiling.
        before_ready: Whether its worker makes it before it is ready to serve.
        overhead_seconds: Time of the calls that served requests beyond their device time, in
            seconds; None if the device has no clock of its own, as on CPUs.
    """

    signature: Signature
    worker: str
    state: GraphState
    traces: int
    compiles: int
    failures: int
    trace_seconds: float
    compile_seconds: Histogram
    stall_seconds: Histogram
    device_seconds: Histogram
    error: str
    loads: int
    load_seconds: float
    step_seconds: float
    missed_seconds: float
    padded_seconds: float
    state_seconds: float
    retry_seconds: float
    left_seconds: float = 0.0
    before_ready: bool = False
    overhead_seconds: float | None = None

    @property
    def has_ended(self) -> bool:
        """Whether it is ready or has failed."""
        return self.state in (GraphState.READY, GraphState.FAILED)
