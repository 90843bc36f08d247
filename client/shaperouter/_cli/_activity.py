"""What devices were busy with lately, from the differences between lists of graphs."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from shaperouter._graph import Graph
from shaperouter._signature import Signature

# Seconds. Calls are told when they have ended and take up to some tenths of a second: over less
# than this, shares would jump about.
INTERVAL = 5.0

_Place = tuple[str, Signature]  # worker and signature


@dataclass(frozen=True, kw_only=True)
class _Reading:
    """Device time since each worker's start, in seconds, at a time on the monotonic clock."""

    at: float
    seconds: Mapping[_Place, float]
    workers: frozenset[str]


class Activity:
    """Device time that graphs took over the last seconds.

    Attributes:
        workers: Names of the workers, in order.
    """

    workers: Sequence[str] = ()

    def __init__(self) -> None:
        """Knows of nothing before `update`."""
        self._readings: deque[_Reading] = deque()
        self._lately: dict[_Place, float] = {}
        self._elapsed = 0.0

    def update(self, graphs: Iterable[Graph], now: float) -> None:
        """Takes in a list of graphs.

        Args:
            graphs: Of all workers.
            now: Time on the monotonic clock, in seconds.
        """
        seconds = {(graph.worker, graph.signature): graph.device_seconds.sum for graph in graphs}
        workers = frozenset(worker for worker, _ in seconds)
        self._readings.append(_Reading(at=now, seconds=seconds, workers=workers))
        while len(self._readings) > 1 and self._readings[1].at <= now - INTERVAL:
            self._readings.popleft()
        first = self._readings[0]
        self._elapsed = now - first.at
        self._lately = {
            (worker, signature): _increase(total, first.seconds.get((worker, signature), 0.0))
            for (worker, signature), total in seconds.items()
            if worker in first.workers  # of others it is not known how much of it is new
        }
        self.workers = sorted(workers)

    def share(self, signature: Signature) -> float:
        """Share of a signature in the device time of all workers, from 0 to 1."""
        total = sum(self._lately.values())
        own = sum(self._lately.get((worker, signature), 0.0) for worker in self.workers)
        return own / total if total else 0.0

    def busy(self, worker: str) -> float | None:
        """Share of the time in which a worker's device computed; None before it is known."""
        own = [seconds for (name, _), seconds in self._lately.items() if name == worker]
        return min(1.0, sum(own) / self._elapsed) if own and self._elapsed else None


def _increase(after: float, before: float) -> float:
    """How much a sum has grown; one that has become less is that of a new process."""
    return after - before if after >= before else after
