"""The order in which a worker's compile threads make graphs."""

from collections.abc import Callable
from math import inf

from shaperouter_service.routing.signatures import Signature


class CompileQueue:
    """The graphs that wait for a compile thread, and those that requests wait for.

    The caller holds a lock around each change.
    """

    def __init__(self) -> None:
        """An empty queue."""
        self._waiting: list[Signature] = []
        # Until they are made, so also while they are being made.
        self._urgent: set[Signature] = set()

    def __len__(self) -> int:
        """Number of graphs that wait for a compile thread."""
        return len(self._waiting)

    @property
    def has_urgent(self) -> bool:
        """Whether a request waits for a graph that is queued or being made."""
        return bool(self._urgent)

    def put(self, signature: Signature) -> None:
        """Adds a graph at the end."""
        self._waiting.append(signature)

    def hurry(self, signature: Signature) -> None:
        """Says that a request waits for a graph that is queued or being made."""
        if signature in self._urgent:
            return
        self._urgent.add(signature)
        if signature in self._waiting:
            # It goes behind the graphs that are already urgent.
            self._waiting.remove(signature)
            self._waiting.append(signature)

    def in_order(self, priority: Callable[[Signature], float]) -> list[Signature]:
        """The waiting graphs: urgent ones as they were requested, then the others by priority."""
        return sorted(
            self._waiting, key=lambda each: -inf if each in self._urgent else -priority(each)
        )

    def take(self, priority: Callable[[Signature], float]) -> Signature | None:
        """Takes the first of the waiting graphs; None if there is none."""
        signature = next(iter(self.in_order(priority)), None)
        if signature is not None:
            self._waiting.remove(signature)
        return signature

    def end(self, signature: Signature) -> None:
        """Says that a graph is no longer being made."""
        self._urgent.discard(signature)

    def drop(self, is_dropped: Callable[[Signature], bool]) -> None:
        """Drops waiting graphs."""
        for signature in list(filter(is_dropped, self._waiting)):
            self._waiting.remove(signature)
            self._urgent.discard(signature)
