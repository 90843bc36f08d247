"""One graph: the compiled program of one signature, its state and what it has cost and served."""

import time
from collections import deque

from shaperouter_service.decoding.program import Program
from shaperouter_service.routing.decay import DecayingSum
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.routing.views import GraphState
from shaperouter_service.telemetry.histogram import COMPILE_BOUNDS, DEVICE_BOUNDS, Durations

# Weight of the newest call in the moving average of device time: follows a change of load within
# some ten calls, without jumping at each outlier.
NEWEST_WEIGHT = 0.2

# Newest calls, of which the quickest tells what a step takes undisturbed, and the fewest that do:
# the first call of a graph, or one beside a compilation, may take many times as long.
NEWEST_STEPS, FEWEST_STEPS = 8, 3


class Graph:
    """A signature that was asked for, or has been missed.

    The table moves its state, and its compile threads count what that took; the device thread calls
    its program and records calls, stalls and misses. Other threads only read.

    Attributes:
        signature: The shape it is compiled for.
        program: What it runs; None while it is cold.
        state: Where it is in its life.
        since: When its state changed, on the monotonic clock in seconds.
        begun: When a thread began to make it, likewise.
        retry_at: Until when it is not tried again, likewise; only while it has failed.
        compiles: Times it was compiled with success.
        loads: Times it was loaded from the compile cache instead.
        failures: Times tracing or compiling failed.
        trace_seconds: Time tracing took, the start of a process for it included.
        compile_seconds: Time compilations took.
        load_seconds: Time loads took.
        make_seconds: Time from cold to ready without a cache, the last time; 0 until known.
        stall_seconds: Time requests waited for it.
        device_seconds: Time of the calls that served requests.
        step_seconds: Moving average of the device time of one step; None until measured.
        missed_seconds: Device time that its absence has cost.
        recent_missed: The same, decaying.
        would_save: Device time that it would have saved since a graph like it was last made ready,
            decaying, whether or not another would have saved more.
        recent_served: Device time of the calls that served requests, decaying.
        padded_seconds: Device time it spent where a smaller graph would have done.
        error: Why it failed, or why it was refused after all when its turn came; empty otherwise.
    """

    def __init__(self, signature: Signature) -> None:
        """A cold graph."""
        self.signature = signature
        self.program: Program | None = None
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
        self.step_seconds: float | None = None
        self._newest_steps: deque[float] = deque(maxlen=NEWEST_STEPS)
        self.missed_seconds = 0.0
        self.recent_missed = DecayingSum()
        self.would_save = DecayingSum()
        self.recent_served = DecayingSum()
        self.padded_seconds = 0.0
        self.error = ""

    @property
    def best_step_seconds(self) -> float | None:
        """The least device time of a step of the newest few calls; None before there are some."""
        if len(self._newest_steps) < FEWEST_STEPS:
            return None
        return min(self._newest_steps)

    @property
    def traces(self) -> int:
        """Times TensorFlow has run the Python code of its programs."""
        return self._traces_before + (0 if self.program is None else self.program.traces)

    def fail(self, error: str, pause: float) -> None:
        """Notes that it could not be made; called by the compile thread.

        Args:
            error: Why.
            pause: Seconds after which it may be tried again.
        """
        self.failures += 1
        self.error = error
        self.retry_at = time.monotonic() + pause
        # A program is traced once; the next attempt has another.
        self._traces_before = self.traces
        self.program = None

    def refuse(self, error: str) -> None:
        """Notes that it was not made when its turn came; called by the compile thread.

        Args:
            error: Why.
        """
        self.error = error
        self.program = None

    @property
    def has_ended(self) -> bool:
        """Whether nothing more comes of it unless somebody asks: it is ready, or will not be."""
        if self.state is GraphState.COLD:
            return bool(self.error)
        return self.state in (GraphState.READY, GraphState.FAILED)

    @property
    def has_failed(self) -> bool:
        """Whether it has failed, and it is too early to try again."""
        return self.state is GraphState.FAILED and time.monotonic() < self.retry_at

    def record_miss(self, seconds: float) -> None:
        """Counts device time that its absence has cost; called by the device thread."""
        self.missed_seconds += seconds
        self.recent_missed.add(seconds, time.monotonic())

    def record_call(self, seconds: float, steps: int | None = None) -> None:
        """Counts a call that served requests; called by the device thread.

        Args:
            seconds: How long it took.
            steps: How many steps it made; None if it says nothing about the time of a step.
        """
        self.device_seconds.observe(seconds)
        self.recent_served.add(seconds, time.monotonic())
        if steps is None:
            return
        newest = seconds / steps
        self._newest_steps.append(newest)
        if self.step_seconds is None:
            self.step_seconds = newest
        else:
            self.step_seconds += NEWEST_WEIGHT * (newest - self.step_seconds)
