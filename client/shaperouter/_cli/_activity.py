"""Recent use of devices, from the differences between lists of graphs."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from shaperouter._graph import Graph
from shaperouter._signature import Signature

# Seconds. A call counts when it has ended and takes up to some tenths of a second, so shares over a
# shorter interval would jump about.
INTERVAL = 5.0

_GraphKey = tuple[str, Signature]  # worker and signature


@dataclass(frozen=True, kw_only=True)
class _Snapshot:
    """Device time of graphs since each worker's start, in seconds, and when it was listed."""

    at: float  # on the monotonic clock
    seconds: Mapping[_GraphKey, float]
    workers: frozenset[str]


class Activity:
    """Device time of each graph over the last `INTERVAL` seconds.

    Attributes:
        workers: Names of the workers, in alphabetical order.
    """

    workers: Sequence[str] = ()

    def __init__(self) -> None:
        """Starts without snapshots."""
        self._snapshots: deque[_Snapshot] = deque()
        self._recent: dict[_GraphKey, float] = {}
        self._elapsed = 0.0

    def update(self, graphs: Iterable[Graph], now: float) -> None:
        """Adds a list of graphs.

        Args:
            graphs: The graphs of all workers.
            now: Time on the monotonic clock, in seconds.
        """
        seconds = {(graph.worker, graph.signature): graph.device_seconds.sum for graph in graphs}
        workers = frozenset(worker for worker, _ in seconds)
        self._snapshots.append(_Snapshot(at=now, seconds=seconds, workers=workers))
        while len(self._snapshots) > 1 and self._snapshots[1].at <= now - INTERVAL:
            self._snapshots.popleft()
        first = self._snapshots[0]
        self._elapsed = now - first.at
        self._recent = {
            (worker, signature): _increase(total, first.seconds.get((worker, signature), 0.0))
            for (worker, signature), total in seconds.items()
            if worker in first.workers  # otherwise it is unknown how much of it is recent
        }
        self.workers = sorted(workers)

    def share(self, signature: Signature) -> float:
        """A signature's share of the device time of all workers, from 0 to 1."""
        total = sum(self._recent.values())
        own = sum(self._recent.get((worker, signature), 0.0) for worker in self.workers)
        return own / total if total else 0.0

    def utilization(self, worker: str) -> float | None:
        """Share of the time that a worker's device computed, from 0 to 1; None while unknown."""
        own = [seconds for (name, _), seconds in self._recent.items() if name == worker]
        return min(1.0, sum(own) / self._elapsed) if own and self._elapsed else None


def _increase(after: float, before: float) -> float:
    """The increase of a sum, which starts from 0 again when the worker's process restarts."""
    return after - before if after >= before else after
