"""One graph: the compiled program of one signature, its state and what it has cost and served."""

from enum import StrEnum

from shaperouter_service.decoding.program import Program
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.telemetry.histogram import COMPILE_BOUNDS, DEVICE_BOUNDS, Durations

# Weight of the newest call in the moving average of device time: follows a change of load within
# some ten calls, without jumping at each outlier.
NEWEST_WEIGHT = 0.2


class GraphState(StrEnum):
    """Where a graph is in its life. A cold signature has no graph yet.

    ::

        (cold) → TRACING → COMPILING → READY
                     └─────────┴─────→ FAILED
    """

    TRACING = "tracing"
    COMPILING = "compiling"
    READY = "ready"
    FAILED = "failed"


class Graph:
    """A signature somebody has asked for.

    The compile thread that owns it moves its state; the device thread calls its program and
    records calls and stalls. Other threads only read.

    Attributes:
        signature: The shape it is compiled for.
        program: What it runs.
        state: Where it is in its life.
        compiles: Times it was compiled with success.
        loads: Times it was loaded from the compile cache instead.
        failures: Times tracing or compiling failed.
        trace_seconds: Time tracing took.
        compile_seconds: Time compilations took.
        load_seconds: Time loads took.
        stall_seconds: Time requests waited for it.
        device_seconds: Time of the calls that served requests.
        step_seconds: Moving average of the device time of one step; None until measured.
        error: Why it failed; empty otherwise.
    """

    def __init__(self, signature: Signature, program: Program) -> None:
        """A graph that waits to be traced."""
        self.signature = signature
        self.program = program
        self.state = GraphState.TRACING
        self.compiles = 0
        self.loads = 0
        self.failures = 0
        self.trace_seconds = 0.0
        self.compile_seconds = Durations(COMPILE_BOUNDS)
        self.load_seconds = 0.0
        self.stall_seconds = Durations(COMPILE_BOUNDS)
        self.device_seconds = Durations(DEVICE_BOUNDS)
        self.step_seconds: float | None = None
        self.error = ""

    def record_call(self, seconds: float, steps: int | None = None) -> None:
        """Counts a call that served requests; called by the device thread.

        Args:
            seconds: How long it took.
            steps: How many steps it made; None if it says nothing about the time of a step.
        """
        self.device_seconds.observe(seconds)
        if steps is None:
            return
        newest = seconds / steps
        if self.step_seconds is None:
            self.step_seconds = newest
        else:
            self.step_seconds += NEWEST_WEIGHT * (newest - self.step_seconds)
