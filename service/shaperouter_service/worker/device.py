"""The device thread: the only one that runs graphs with active rows."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import structlog

from shaperouter_service.decoding import enter_thread

# Maximum seconds of a pause for compilations. Streams notice longer ones.
MAX_PAUSE = 0.2

log = structlog.get_logger(__name__)


class Scheduler(Protocol):
    """The part of a lane, or of the scheduler of a model that is called once, that takes turns."""

    @property
    def isolates(self) -> bool:
        """Whether it needs the device to itself."""

    @property
    def waits_for_graph(self) -> bool:
        """Whether a request waits for a graph to be compiled."""

    def turn(self) -> bool:
        """Does some work; returns whether there was any."""

    def let_go(self) -> None:
        """Drops what was cancelled, without the device."""


class DeviceThread(threading.Thread):
    """Gives lanes and calls their turns while there is work, and sleeps otherwise."""

    def __init__(
        self,
        lanes: Callable[[], Sequence[Scheduler]],
        *,
        on_turn: Callable[[], None],
        on_idle: Callable[[], bool],
        on_defect: Callable[[], None],
        shares_cores: bool,
    ) -> None:
        """Prepares the thread; `start` starts it.

        Args:
            lanes: Returns the lanes, and the schedulers of calls, that share the device now.
            on_turn: Called after turns that used the device.
            on_idle: Called when no lane has work; returns whether it has used the device.
            on_defect: Called if a turn raises an error. The state of the lanes is then unreliable,
                so the process should be replaced.
            shares_cores: Whether the device computes on the cores that compilations use.
        """
        super().__init__(name="device", daemon=True)
        self._lanes = lanes
        self._on_turn = on_turn
        self._on_idle = on_idle
        self._on_defect = on_defect
        self._shares_cores = shares_cores
        self._wake = threading.Event()

    def wake(self) -> None:
        """Wakes the thread after a change: a run, a cancellation or the state of a graph."""
        self._wake.set()

    def run(self) -> None:
        """Gives lanes their turns until a turn raises an error."""
        try:
            enter_thread()
            while True:
                self._wake.clear()
                began = time.monotonic()
                if self._take_turns() or self._on_idle():
                    self._on_turn()
                    self._leave_cores(time.monotonic() - began)
                else:
                    self._wake.wait()
        # Any error must end the worker; otherwise its requests would hang.
        except BaseException:
            log.exception("the device thread failed")
            self._on_defect()

    def _take_turns(self) -> bool:
        """Gives each lane its turn, or only the one with a run that needs the device to itself.

        Returns:
            Whether the device did anything.
        """
        lanes = self._lanes()
        isolating = next((lane for lane in lanes if lane.isolates), None)
        if isolating is not None:
            # The other lanes pause, possibly for long, but their runs can still be cancelled.
            for lane in lanes:
                lane.let_go()
            if isolating.turn():
                return True
        turns = [lane.turn() for lane in lanes]
        return any(turns)

    def _leave_cores(self, taken: float) -> None:
        """Pauses while requests wait for graphs, so that compilations get half of the time.

        Compile threads have a low priority, and would get a tenth of it.

        Args:
            taken: Seconds that the last turns took.
        """
        until = time.monotonic() + min(taken, MAX_PAUSE)
        while self._shares_cores and any(lane.waits_for_graph for lane in self._lanes()):
            left = until - time.monotonic()
            if left <= 0:
                return
            # Turns follow, which see every change.
            self._wake.wait(left)
            self._wake.clear()
