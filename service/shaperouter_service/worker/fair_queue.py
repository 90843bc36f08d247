"""The queue of a lane: bounded, and fair between those who ask.

Start-time fair queueing (Goyal, Vin and Cheng, 1996): a run's tag says when the runs of its client
before it would have ended, had every client the same share of the device. Runs leave in order of
their tags, so who asks for much waits behind his own runs, and not before those of others.

A client pays, in tokens, when a run of his starts, and gets back at its end what that did not use:
who asks for many tokens and needs few, or cancels, is not held to what he asked for.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from shaperouter_service.errors import QueueFullError
from shaperouter_service.worker.run import Phase, Run


@dataclass(frozen=True, kw_only=True)
class _Place:
    """A run's place, with the tag of what was started last when it came: its own is no less."""

    run: Run
    since: int


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
        # In order of arrival.
        self._places: list[_Place] = []
        # The largest tag of those that were started.
        self._now = 0
        # When what each client has started would have ended.
        self._ends: dict[str, int] = {}

    def __len__(self) -> int:
        """How many runs wait."""
        return len(self._places)

    def __iter__(self) -> Iterator[Run]:
        """Those that wait, in the order in which they are due."""
        tags = self._tags()
        # Sorting keeps the order of arrival among equal tags.
        return (place.run for place, _ in sorted(tags, key=lambda tagged: tagged[1]))

    def put(self, run: Run) -> None:
        """Adds a run.

        Raises:
            QueueFullError: There is no room, or none for its client.
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
        """Takes out a run that gets its slot, for which its client pays."""
        ((place, tag),) = (tagged for tagged in self._tags() if tagged[0].run is run)
        self._places.remove(place)
        self._now = max(self._now, tag)
        if not run.resumed:
            start = max(place.since, self._ends.get(run.client, 0))
            self._ends[run.client] = start + _price(run)
        # Who has not asked for a while is as one who never has.
        waiting = {place.run.client for place in self._places}
        self._ends = {
            client: end
            for client, end in self._ends.items()
            if end > self._now or client in waiting
        }

    def end(self, run: Run) -> None:
        """Pays back what a run that was started has not used."""
        if not run.resumed and run.client in self._ends:
            self._ends[run.client] -= _unused(run)

    def remove(self, run: Run) -> None:
        """Takes out a run that fails."""
        self.drop(lambda each: each is run)

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

    def _tags(self) -> Iterator[tuple[_Place, int]]:
        """The places in order of arrival, each with its run's tag."""
        ends = dict(self._ends)
        for place in self._places:
            run = place.run
            # It was due elsewhere already, and paid for.
            tag = place.since if run.resumed else max(place.since, ends.get(run.client, 0))
            yield place, tag
            if not run.resumed:
                ends[run.client] = tag + _price(run)


def _price(run: Run) -> int:
    return len(run.token_ids) + run.max_new_tokens


def _unused(run: Run) -> int:
    # A prompt that is being read counts as not read: how far that has got is the graph's matter.
    is_read = run.phase is not Phase.PREFILL
    return _price(run) - run.generated - is_read * len(run.token_ids)
