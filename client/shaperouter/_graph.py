"""Compiled graphs: what they cost and what they serve."""

import enum
from dataclasses import dataclass

from shaperouter._signature import Signature


class GraphState(enum.StrEnum):
    """The life of a graph."""

    COLD = "cold"  # nobody has asked for it
    TRACING = "tracing"  # model code is being turned into a TensorFlow graph
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
        error: Why it failed; empty otherwise.
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
