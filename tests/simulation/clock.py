"""Simulated time: a heap of events.

A heap is enough, and a library of processes such as SimPy would add nothing: workers are the only
processes, and one turn of a scheduler, the product's own code, is one event.
"""

import contextlib
import heapq
import itertools
import time
from collections.abc import Callable, Iterator
from unittest import mock


class Clock:
    """Runs actions at their times. Calling it gives the time in seconds, as `time.monotonic`."""

    def __init__(self) -> None:
        self._now = 0.0
        self._ahead = 0.0
        self._count = itertools.count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []

    def __call__(self) -> float:
        return self._now + self._ahead

    def at(self, when: float, action: Callable[[], None]) -> None:
        """Runs an action at a time; actions of one time run in the order of these calls."""
        heapq.heappush(self._events, (when, next(self._count), action))

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Runs an action after some seconds."""
        self.at(self() + seconds, action)

    def elapse(self, seconds: float) -> None:
        """Lets time pass within an action, such as a call of a device; others do not see it."""
        self._ahead += seconds

    def run(self, until: float) -> None:
        """Runs all actions up to a time."""
        with self._instead_of_the_machines():
            while self._events and self._events[0][0] <= until:
                self._now, _, action = heapq.heappop(self._events)
                self._ahead = 0.0
                action()
        self._now, self._ahead = until, 0.0

    @contextlib.contextmanager
    def _instead_of_the_machines(self) -> Iterator[None]:
        """The product's code reads this clock meanwhile. It must start no thread."""
        with mock.patch.object(time, "monotonic", self):
            yield
