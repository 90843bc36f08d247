"""The queue of a lane: bounded, and fair between those who ask.

Start-time fair queueing (Goyal, Vin and Cheng, 1996): a run's tag says when the runs of its client
before it would have ended, had every client the same share of the device. Runs leave in order of
their tags, so who asks for much waits behind his own runs, and not before those of others.
"""

from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count

from shaperouter_service.errors import QueueFullError
from shaperouter_service.worker.run import Run


@dataclass(order=True)
class _Place:
    tag: int
    arrival: int
    run: Run = field(compare=False)


class FairQueue:
    """Runs that wait for a slot. Not locked."""

    def __init__(self, model: str, limit: int) -> None:
        """Starts empty.

        Args:
            model: What runs wait for, for errors.
            limit: Most runs that wait. A client alone can take half of it, two a third each, and so
                on: there is always room for one more.
        """
        self._model = model
        self._limit = limit
        self._places: list[_Place] = []
        self._arrivals = count()
        self._now = 0
        self._ends: dict[str, int] = {}

    def __len__(self) -> int:
        """How many runs wait."""
        return len(self._places)

    def __iter__(self) -> Iterator[Run]:
        """Those that wait, in the order in which they are due."""
        return (place.run for place in self._places)

    def put(self, run: Run) -> None:
        """Adds a run.

        Raises:
            QueueFullError: There is no room, or none for its client.
        """
        waiting = Counter(place.run.client for place in self._places)
        share = max(1, self._limit // (len(waiting | Counter([run.client])) + 1))
        if len(self._places) >= self._limit:
            raise QueueFullError(self._model, self._limit)
        if waiting[run.client] >= share:
            raise QueueFullError(self._model, share, of_client=True)
        tag = max(self._now, self._ends.get(run.client, 0))
        self._ends[run.client] = tag + len(run.token_ids) + run.max_new_tokens
        insort(self._places, _Place(tag, next(self._arrivals), run))

    def remove(self, run: Run) -> None:
        """Takes out a run that gets its slot, or that fails."""
        (index,) = (i for i, place in enumerate(self._places) if place.run is run)
        self._now = max(self._now, self._places.pop(index).tag)
        # Who has not asked for a while is as one who never has.
        self._ends = {client: end for client, end in self._ends.items() if end > self._now}

    def take_all(self) -> list[Run]:
        """Takes out all runs, in the order in which they are due."""
        runs = list(self)
        self._places = []
        return runs

    def drop(self, unwanted: Callable[[Run], bool]) -> list[Run]:
        """Takes out the runs that nobody wants any more, and returns them."""
        kept: list[_Place] = []
        dropped: list[Run] = []
        for place in self._places:
            if unwanted(place.run):
                dropped.append(place.run)
            else:
                kept.append(place)
        self._places = kept
        return dropped
