"""The order in which a worker's compile threads make graphs."""

from collections.abc import Callable
from math import inf

from shaperouter_service.routing.signatures import Signature


class CompileQueue:
    """The graphs that wait for a compile thread. The caller holds a lock around each change."""

    def __init__(self) -> None:
        """An empty queue."""
        # In the order of requests, and whether each is urgent.
        self._waiting: dict[Signature, bool] = {}

    def __len__(self) -> int:
        """Number of graphs."""
        return len(self._waiting)

    def put(self, signature: Signature, *, urgent: bool) -> None:
        """Adds a graph that is not in the queue."""
        self._waiting[signature] = urgent

    def hurry(self, signature: Signature) -> None:
        """Makes a waiting graph urgent, behind those that already are."""
        if not self._waiting[signature]:
            del self._waiting[signature]
            self._waiting[signature] = True

    def in_order(self, priority: Callable[[Signature], float]) -> list[Signature]:
        """Returns the graphs: urgent ones as they were requested, then the others by priority."""
        return sorted(
            self._waiting, key=lambda each: -inf if self._waiting[each] else -priority(each)
        )

    def take(self, priority: Callable[[Signature], float]) -> Signature | None:
        """Takes the first graph; None if there is none."""
        signature = next(iter(self.in_order(priority)), None)
        if signature is not None:
            del self._waiting[signature]
        return signature

    def drop(self, is_dropped: Callable[[Signature], bool]) -> None:
        """Drops graphs."""
        for signature in list(filter(is_dropped, self._waiting)):
            del self._waiting[signature]
