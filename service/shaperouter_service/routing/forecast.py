"""Forecasts of when graphs will be ready."""

import heapq
from collections.abc import Mapping
from typing import TypeVar

K = TypeVar("K")

# Fraction of its expected time that a graph is thought to need still if it has taken longer.
OVERDUE = 0.1


class Forecast:
    """Predicts when graphs will be ready, from estimates and from the times that others took.

    Estimates are for compilations. Graphs that are loaded from the compile cache take a fraction of
    that, and all take longer on a busy machine, so estimates are scaled by the pace of the graphs
    that this process has made. Not thread-safe.
    """

    def __init__(self, threads: int) -> None:
        """Starts with the pace of the estimates.

        Args:
            threads: Number of graphs that are made at a time.
        """
        self._threads = threads
        self._estimated = 0.0
        self._taken = 0.0

    def record(self, *, estimate: float, seconds: float) -> None:
        """Records the time that a graph took."""
        self._estimated += estimate
        self._taken += seconds

    @property
    def pace(self) -> float:
        """Actual seconds for each estimated second."""
        return self._taken / self._estimated if self._estimated > 0 else 1.0

    def left(
        self, under_way: Mapping[K, tuple[float, float]], queued: Mapping[K, float]
    ) -> dict[K, float]:
        """Seconds until each graph is expected to be ready.

        Args:
            under_way: The estimate and the elapsed seconds of each graph that is being made.
            queued: Estimates of graphs that wait for a thread, in order.
        """
        left: dict[K, float] = {}
        for key, (estimate, elapsed) in under_way.items():
            needs = self.pace * estimate
            left[key] = max(OVERDUE * needs, needs - elapsed)
        # When each thread is free.
        free = [*left.values()] + [0.0] * max(0, self._threads - len(left))
        heapq.heapify(free)
        for key, estimate in queued.items():
            left[key] = heapq.heappop(free) + self.pace * estimate
            heapq.heappush(free, left[key])
        return left
