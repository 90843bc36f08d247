"""The queue of a lane: bounded, and fair between clients.

Start-time fair queueing (Goyal, Vin and Cheng, 1996): the tag of a run is the virtual time at which
its client's earlier runs would have ended if all clients had the same share of the device. Runs
leave in the order of their tags, so a heavy client delays only itself.

A client is charged in tokens when its run starts, and refunded the unused ones when the run ends.
So a client that requests many tokens but uses few, or cancels, pays only for those used.

The virtual time also advances by the tokens that runs used, divided among the clients that share
the lane. Otherwise clients that are always new would hold up a client that has used some forever.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from shaperouter_service.errors import QueueFullError
from shaperouter_service.worker.run import Phase, Run


@dataclass(kw_only=True)
class _Place:
    """A queued run.

    Attributes:
        run: The run.
        since: The virtual time of its arrival, which is the minimum of its tag.
        passed: Whether a run has started before its turn, as this one waits for its graph.
    """

    run: Run
    since: float
    passed: bool = False


class FairQueue:
    """Runs that wait for a slot. Not locked."""

    def __init__(self, model: str, limit: int) -> None:
        """Starts empty.

        Args:
            model: Name of the model, for errors.
            limit: Maximum number of queued runs. A single client may take half of it, two a third
                each, and so on, so there is always room for another client.
        """
        self._model = model
        self._limit = limit
        # In order of arrival.
        self._places: list[_Place] = []
        # Clients of started runs, with the number of each.
        self._running: Counter[str] = Counter()
        # The virtual time: at least the largest tag of a started run.
        self._now = 0.0
        # The virtual time at which each client's started runs would have ended.
        self._ends: dict[str, float] = {}

    def __len__(self) -> int:
        """Number of queued runs."""
        return len(self._places)

    def __iter__(self) -> Iterator[Run]:
        """The queued runs in the order of their tags."""
        return (place.run for place, _ in self._in_order())

    def put(self, run: Run) -> None:
        """Adds a run.

        Raises:
            QueueFullError: The queue, or the client's share of it, is full.
        """
        if len(self._places) >= self._limit:
            raise QueueFullError(self._model, self._limit)
        if not run.resumed:
            waiting = Counter(place.run.client for place in self._places if not place.run.resumed)
            share = max(1, self._limit // (len(waiting | Counter([run.client])) + 1))
            if waiting[run.client] >= share:
                raise QueueFullError(self._model, share, of_client=True)
        self._places.append(_Place(run=run, since=self._now))

    def start(self, run: Run) -> None:
        """Removes a run that gets a slot, and charges its client."""
        tags = self._in_order()
        index = next(index for index, (place, _) in enumerate(tags) if place.run is run)
        for earlier, _ in tags[:index]:
            earlier.passed = True
        place, tag = tags[index]
        self._places.remove(place)
        self._running[run.client] += 1
        self._now = max(self._now, tag)
        if not run.resumed:
            start = max(place.since, self._ends.get(run.client, 0))
            self._ends[run.client] = start + _price(run)
        # Forget clients whose charges are in the past.
        waiting = {place.run.client for place in self._places}
        self._ends = {
            client: end
            for client, end in self._ends.items()
            if end > self._now or client in waiting
        }

    def end(self, run: Run) -> None:
        """Refunds the unused tokens of a started run; the others advance the virtual time."""
        clients = {*self._running, *(place.run.client for place in self._places)}
        self._running -= Counter([run.client])
        if not run.resumed:
            if run.client in self._ends:
                self._ends[run.client] -= _unused(run)
            self._advance((_price(run) - _unused(run)) / len(clients))
        if not self._running and not self._places:
            self._ends.clear()

    def _advance(self, tokens: float) -> None:
        """Advances the virtual time, but not beyond the tag of a client that waits for its share.

        Beyond it, the client would have runs ahead of clients that come later and have used less.
        """
        waiting = (each for each in self._tags() if not each[0].passed)
        behind = [tag for place, tag in waiting if tag > place.since]
        self._now = max(self._now, min([self._now + tokens, *behind]))

    def remove(self, run: Run) -> None:
        """Removes a run that fails."""
        self.drop(lambda each: each is run)

    def take_all(self) -> list[Run]:
        """Removes and returns all runs, in the order of their tags."""
        runs = list(self)
        self._places = []
        return runs

    def drop(self, unwanted: Callable[[Run], bool]) -> list[Run]:
        """Removes and returns the unwanted runs."""
        kept: list[_Place] = []
        dropped: list[Run] = []
        for place in self._places:
            if unwanted(place.run):
                dropped.append(place.run)
            else:
                kept.append(place)
        self._places = kept
        return dropped

    def _in_order(self) -> list[tuple[_Place, float]]:
        """The queued runs in the order of their tags."""
        # Sorting keeps the order of arrival among equal tags.
        return sorted(self._tags(), key=lambda tagged: tagged[1])

    def _tags(self) -> Iterator[tuple[_Place, float]]:
        """The queued runs in order of arrival, with their tags."""
        ends = dict(self._ends)
        for place in self._places:
            run = place.run
            # A resumed run was charged on another worker.
            tag = place.since if run.resumed else max(place.since, ends.get(run.client, 0))
            yield place, tag
            if not run.resumed:
                ends[run.client] = tag + _price(run)


def _price(run: Run) -> int:
    return len(run.token_ids) + run.max_new_tokens


def _unused(run: Run) -> int:
    # A partly read prompt counts as unread.
    is_read = run.phase is not Phase.PREFILL
    return _price(run) - run.generated - is_read * len(run.token_ids)
