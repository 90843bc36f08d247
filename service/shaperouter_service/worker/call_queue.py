"""The queue of a model that answers once: bounded, and fair between clients.

It is fair as the queue of a lane is; see `fair_queue`. But calls are short and many, so nothing is
refunded. A call that is computed in parts takes turns with others after each part.
"""

import bisect
import itertools
from collections import Counter
from collections.abc import Callable, Iterator

from shaperouter_service.errors import QueueFullError
from shaperouter_service.worker.call import Call


class CallQueue:
    """Calls that wait to be computed, in whole or in part. Not locked."""

    def __init__(self, model: str, limit: int) -> None:
        """Starts empty.

        Args:
            model: Name of the model, for errors.
            limit: Maximum number of waiting calls. A single client may take half of it, two a third
                each, and so on, so there is always room for another client.
        """
        self._model = model
        self._limit = limit
        # With their tags and the order of their arrival, sorted.
        self._waiting: list[tuple[float, int, Call]] = []
        self._clients: Counter[str] = Counter()
        self._arrivals = itertools.count()
        # The virtual time, and the virtual time at which each client's calls would have ended.
        self._now = 0.0
        self._ends: dict[str, float] = {}

    def __len__(self) -> int:
        """Number of waiting calls."""
        return len(self._waiting)

    def __iter__(self) -> Iterator[Call]:
        """The waiting calls in the order of their tags."""
        return (call for _, _, call in self._waiting)

    def put(self, call: Call) -> None:
        """Adds a call.

        Raises:
            QueueFullError: The queue, or the client's share of it, is full.
        """
        if len(self._waiting) >= self._limit:
            raise QueueFullError(self._model, self._limit)
        clients = len(self._clients | Counter([call.client]))
        share = max(1, self._limit // (clients + 1))
        if self._clients[call.client] >= share:
            raise QueueFullError(self._model, share, of_client=True)
        tag = max(self._now, self._ends.get(call.client, 0))
        self._ends[call.client] = tag + call.sizes.rows
        bisect.insort(self._waiting, (tag, next(self._arrivals), call))
        self._clients[call.client] += 1

    def computed(self, call: Call, rows: int) -> None:
        """Moves a partly computed call back in the queue, so that later calls get their turn.

        Args:
            call: The call; nothing happens if it has left.
            rows: Number of its rows that were computed.
        """
        for index, (tag, arrival, each) in enumerate(self._waiting):
            if each is call:
                # It advances while new clients come, so that they cannot hold up others forever.
                self._now = max(self._now, tag) + rows / len(self._clients)
                del self._waiting[index]
                bisect.insort(self._waiting, (tag + rows, arrival, call))
                return

    def drop(self, unwanted: Callable[[Call], bool]) -> list[Call]:
        """Removes and returns the unwanted calls."""
        kept, dropped = [], []
        for each in self._waiting:
            # Asked once: another thread may cancel the call at any moment.
            if unwanted(each[2]):
                dropped.append(each[2])
            else:
                kept.append(each)
        if dropped:
            self._waiting = kept
            self._clients -= Counter(call.client for call in dropped)
            # Forget clients whose charges are in the past.
            self._ends = {
                client: end
                for client, end in self._ends.items()
                if end > self._now or client in self._clients
            }
        return dropped
