"""Compiled graphs: what they cost and what they serve."""

import enum
from dataclasses import dataclass

from shaperouter._signature import Signature


class GraphState(enum.StrEnum):
    """The life of a graph."""

    COLD = "cold"  # nobody has asked for it
    QUEUED = "queued"  # it waits for a compile thread
    TRACING = "tracing"  # model code is turned into a TensorFlow graph
    COMPILING = "compiling"  # XLA is compiling it
    READY = "ready"  # it can serve
    FAILED = "failed"  # tracing or compiling failed
    UNKNOWN = "unknown"  # a state that this version of the client does not know


@dataclass(frozen=True, kw_only=True)
class Histogram:
    """Observations of durations, counted in ranges.

    Attributes:
        bounds: Upper bounds of the ranges in seconds, ascending, without the last, infinite one.
        counts: Observations in each range, not accumulated; one more than `bounds`.
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
    """One signature on one worker; counts are since the worker started.

    Attributes:
        signature: The shape it is compiled for.
        worker: The worker it is on.
        state: Where it is in its life.
        traces: Times it was traced.
        compiles: Times it was compiled with success.
        failures: Times tracing or compiling it failed.
        trace_seconds: Time tracing took, in seconds.
        compile_seconds: Time each successful compilation took, tracing left out.
        stall_seconds: Requests that waited for it to be compiled, and how long.
        device_seconds: Calls that served requests, and the time the device spent in each.
        error: Why it failed; or, of a cold one, why it was refused when its turn came. Empty
            otherwise.
        loads: Times it was loaded from the cache on disk instead of being compiled.
        load_seconds: Time those took, in seconds.
        step_seconds: Device time of one step, or of one piece of prompts: a moving average; 0 until
            measured.
        missed_seconds: Device time that its absence has cost, in seconds: larger graphs ran, or
            several in turn.
        padded_seconds: Device time that it spent on padding where a smaller graph would have done,
            in seconds.
        state_seconds: Time since its state changed, in seconds.
        retry_seconds: Time until it may be tried again, in seconds; of failed graphs.
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
