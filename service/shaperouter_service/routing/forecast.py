"""When graphs that are on the way will be ready."""

import heapq
from collections.abc import Mapping
from typing import TypeVar

K = TypeVar("K")

# What a graph that takes longer than expected is thought to need still, of its expected time.
OVERDUE = 0.1


class Forecast:
    """Says when graphs will be ready, from estimates and from what others have really taken.

    Estimates are of compilations. Graphs that are loaded from the compile cache take a fraction of
    that, and all take longer on a machine that has more to do: so estimates are scaled by the pace
    of the graphs that this process has made. Not safe for threads.
    """

    def __init__(self, threads: int) -> None:
        """Starts with the pace of the estimates.

        Args:
            threads: Graphs that are made at a time.
        """
        self._threads = threads
        self._estimated = 0.0
        self._taken = 0.0

    def made(self, *, estimate: float, seconds: float) -> None:
        """Notes what a graph has really taken."""
        self._estimated += estimate
        self._taken += seconds

    @property
    def pace(self) -> float:
        """Seconds that a second of an estimate takes."""
        return self._taken / self._estimated if self._estimated > 0 else 1.0

    def left(
        self, under_way: Mapping[K, tuple[float, float]], queued: Mapping[K, float]
    ) -> dict[K, float]:
        """Seconds until each graph is expected to be ready.

        Args:
            under_way: Those that are being made: the estimate, and the seconds since they began.
            queued: Estimates of those that wait for a thread, in the order of their turns.
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
