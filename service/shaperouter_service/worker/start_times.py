"""How long each phase of a worker's start took."""

import dataclasses
import time

import psutil

from shaperouter_service.routing.snapshots import StartTimes


class StartTimer:
    """Times the phases of a worker's start.

    One thread at a time may write; any may read.
    """

    def __init__(self) -> None:
        """Records the end of the first phase: the code has been imported."""
        # The wall clock, because the kernel started the process.
        started = psutil.Process().create_time()
        self.times = StartTimes(import_seconds=time.time() - started)
        self._phase_began = time.monotonic()

    def loaded(self) -> None:
        """Records that the weights are on the device."""
        self.times = dataclasses.replace(self.times, weights_seconds=self._lap())

    def record_graphs(self, *, covered: bool, warm: bool) -> None:
        """Records that graphs are ready.

        Args:
            covered: Whether those that cover every request are ready.
            warm: Whether all that must exist before readiness are ready.
        """
        if covered and self.times.first_cover_seconds is None:
            self.times = dataclasses.replace(self.times, first_cover_seconds=self._lap())
        if warm and self.times.warm_seconds is None:
            self.times = dataclasses.replace(self.times, warm_seconds=self._lap())

    def _lap(self) -> float:
        began, self._phase_began = self._phase_began, time.monotonic()
        return self._phase_began - began
