"""One graph: the compiled program of a signature, with its state and its statistics."""

import statistics
import time
from collections import deque

from shaperouter_service.errors import (
    ExhaustedError,
    GraphFailedError,
    ServiceError,
    shortened,
)
from shaperouter_service.graphs.graph_program import GraphProgram
from shaperouter_service.routing.decay import DecayingSum
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.routing.snapshots import GraphState
from shaperouter_service.telemetry.histogram import COMPILE_BOUNDS, DEVICE_BOUNDS, Durations

# The times of the last 8 calls say what a step takes, once there are 3: the first call of a graph,
# or one during a compilation, may take many times as long. The fastest is the undisturbed time. The
# median follows a change of load within some calls, and ignores a call while the process was
# stopped.
NEWEST_STEPS, FEWEST_STEPS = 8, 3

# Characters of a failed graph's error that are kept, because each snapshot has them. TensorFlow's
# texts may have thousands; the log has all of them.
MAX_ERROR = 500


class Graph:
    """A graph that was requested, or whose absence has cost time.

    The table changes its state, and the table's compile threads record what compiling took. The
    device thread calls its program and records calls, stalls and misses. Other threads only read.

    Attributes:
        signature: The shape that it is compiled for.
        program: The program that it runs; None while it is cold.
        state: Its current state.
        since: When its state last changed, in seconds of the monotonic clock.
        begun: When a compile thread started on it, likewise.
        retry_at: When it may be tried again, likewise; only while it has failed.
        compiles: Number of successful compilations.
        loads: Number of loads from the compile cache.
        failures: Number of failures to trace or compile.
        trace_seconds: Time spent tracing.
        compile_seconds: Durations of the compilations.
        load_seconds: Time spent loading.
        make_seconds: Time that the last build took, or would have taken without the cache; 0 until
            known.
        stall_seconds: Durations of the stalls of requests that waited for it.
        device_seconds: Durations of the calls that served requests, by the device's own clock if it
            has one.
        overhead_seconds: Time of these calls that the device did not compute; None without a clock
            of its own.
        missed_seconds: Device time lost because it was not ready.
        recent_missed: The same, with exponential decay.
        would_save: Device time that it would have saved since a graph of its lattice last became
            ready, with decay, whether or not another graph would have saved more.
        recent_served: Device time of the calls that served requests, with decay.
        padded_seconds: Device time lost on requests that a smaller graph would have covered.
        is_kept: Whether it was requested by name, and not only by calls. The table forgets old
            failures of others.
        error: Why it failed, shortened, or why it was refused when its turn came; empty otherwise.
        lacked: What the process lacked when it failed, such as memory; empty otherwise.
    """

    def __init__(self, signature: Signature) -> None:
        """A cold graph."""
        self.signature = signature
        self.program: GraphProgram | None = None
        self.state = GraphState.COLD
        self.since = time.monotonic()
        self.begun = 0.0
        self.retry_at = 0.0
        self._traces_before = 0
        self.compiles = 0
        self.loads = 0
        self.failures = 0
        self.trace_seconds = 0.0
        self.compile_seconds = Durations(COMPILE_BOUNDS)
        self.load_seconds = 0.0
        self.make_seconds = 0.0
        self.stall_seconds = Durations(COMPILE_BOUNDS)
        self.device_seconds = Durations(DEVICE_BOUNDS)
        self.overhead_seconds: float | None = None
        self._newest_steps: deque[float] = deque(maxlen=NEWEST_STEPS)
        self.missed_seconds = 0.0
        self.recent_missed = DecayingSum()
        self.would_save = DecayingSum()
        self.recent_served = DecayingSum()
        self.padded_seconds = 0.0
        self.is_kept = False
        self.error = ""
        self.lacked = ""

    @property
    def step_seconds(self) -> float | None:
        """Median device time of a step in the newest calls; None before the first."""
        return statistics.median(self._newest_steps) if self._newest_steps else None

    @property
    def best_step_seconds(self) -> float | None:
        """Minimum device time of a step in the newest calls; None until there are enough calls."""
        if len(self._newest_steps) < FEWEST_STEPS:
            return None
        return min(self._newest_steps)

    @property
    def traces(self) -> int:
        """Number of times that TensorFlow has run the Python code of its programs."""
        return self._traces_before + (0 if self.program is None else self.program.traces)

    def fail(self, error: Exception, pause: float) -> None:
        """Records that it could not be compiled; called by the compile thread.

        Args:
            error: Why.
            pause: Seconds after which it may be tried again.
        """
        self.failures += 1
        self.error = shortened(str(error) or type(error).__name__, MAX_ERROR)
        exhausted = ExhaustedError.of(error)
        self.lacked = exhausted.what if exhausted else ""
        self.retry_at = time.monotonic() + pause
        # A program is traced only once, so the next attempt needs a new one.
        self._traces_before = self.traces
        self.program = None

    def refuse(self, error: str) -> None:
        """Records that it was refused when its turn came; called by the compile thread.

        Args:
            error: Why.
        """
        self.error, self.lacked = error, ""
        self.program = None

    @property
    def has_ended(self) -> bool:
        """Whether its state is final until the next request for it: ready, failed or refused."""
        if self.state is GraphState.COLD:
            return bool(self.error)
        return self.state in (GraphState.READY, GraphState.FAILED)

    @property
    def was_lost(self) -> bool:
        """Whether it has failed or was refused, and nothing has requested it since."""
        return self.has_ended and self.state is not GraphState.READY

    @property
    def has_failed(self) -> bool:
        """Whether it has failed and it is too early to try again."""
        return self.state is GraphState.FAILED and time.monotonic() < self.retry_at

    @property
    def failure(self) -> ServiceError:
        """The error of requests that need it after it has failed.

        Another worker can serve them if this process lacks memory or file descriptors for now.
        """
        if self.lacked:
            return ExhaustedError(self.lacked)
        return GraphFailedError(self.signature, self.error)

    def record_miss(self, seconds: float) -> None:
        """Adds device time lost because it was not ready; called by the device thread."""
        self.missed_seconds += seconds
        self.recent_missed.add(seconds, time.monotonic())

    def record_call(self, seconds: float, steps: int | None = None) -> float:
        """Records the latest call of the program, which served requests.

        Called by the device thread. Steps are measured by the host's clock, since requests wait for
        all of a call.

        Args:
            seconds: Duration of the call by the host's clock.
            steps: Number of steps in it; None if the call says nothing about the time of a step.

        Returns:
            Duration by the device's own clock, if it has one; otherwise the same.
        """
        on_device = None if self.program is None else self.program.device_seconds
        if on_device is not None:
            self.overhead_seconds = (self.overhead_seconds or 0.0) + seconds - on_device
        device_seconds = seconds if on_device is None else on_device
        self.device_seconds.observe(device_seconds)
        self.recent_served.add(seconds, time.monotonic())
        if steps is None:
            return device_seconds
        self._newest_steps.append(seconds / steps)
        return device_seconds
