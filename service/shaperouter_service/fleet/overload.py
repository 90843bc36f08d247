"""Overload: what a router lets wait, so that what it has let in keeps its speed."""

import contextlib
from collections import Counter, defaultdict
from collections.abc import Iterator

from shaperouter_service.errors import DeadlineTooShortError, OverloadedError
from shaperouter_service.routing.decision import Option

# Of an expected time, what a deadline must leave for the request to be tried: an estimate that is
# too long must not refuse what could be served.
CERTAIN = 0.7


class OverloadGuard:
    """Refuses at once what would wait too long or end too late. Belongs to the event loop.

    What rests on guesses alone is let in: workers have bounded queues, and calls their deadlines.

    Who waits is counted for each lane of a worker, since each has a queue of its own, as what was
    sent there and has not answered yet. Beam search answers at its end alone, so in its lanes what
    runs is counted with what waits: a client's share is then that of all its requests there, and
    it is the share that matters.
    """

    def __init__(self, max_queue_seconds: float) -> None:
        """Starts with nobody waiting.

        Args:
            max_queue_seconds: Longest that a request may be expected to wait for a slot.
        """
        self._limit = max_queue_seconds
        # Requests of each client, by worker, model and beam width.
        self._waiting: defaultdict[tuple[str, str, int], Counter[str]] = defaultdict(Counter)

    @contextlib.contextmanager
    def waiting(self, client: str, option: Option) -> Iterator[None]:
        """Counts a request among those that wait where an option is, inside of the context."""
        lane = _lane(option)
        self._waiting[lane][client] += 1
        try:
            yield
        finally:
            self._waiting[lane][client] -= 1
            if not self._waiting[lane][client]:
                del self._waiting[lane][client]
            if not self._waiting[lane]:
                del self._waiting[lane]

    def check(
        self, client: str, option: Option, *, least_share: float, seconds_left: float | None
    ) -> None:
        """Lets a request in, or does not.

        Args:
            client: Who asks.
            option: The best way there is to serve it.
            least_share: Of its tokens, what must be made before it can end.
            seconds_left: Until its deadline, if it has one.

        Raises:
            OverloadedError: It would wait too long.
            DeadlineTooShortError: No option ends in time.
        """
        if not option.informed:
            return
        model, wait = option.decode.model, self._expected_wait(client, option)
        if wait > self._limit:
            raise OverloadedError(model, wait, self._limit)
        needed = wait + option.stall_seconds + option.prefill_seconds
        needed += least_share * option.decode_seconds
        if seconds_left is not None and CERTAIN * needed > seconds_left:
            raise DeadlineTooShortError(model, needed, seconds_left)

    def _expected_wait(self, client: str, option: Option) -> float:
        """How long a client's request is to wait, in seconds.

        The workers' queues are fair: a client waits for its own requests and for as many of each
        other client, so who asks for little is let in behind any flood.
        """
        waiting = self._waiting.get(_lane(option), Counter())
        clients = len({*waiting, client})
        own = (waiting[client] + 1) / (waiting.total() + 1)
        return min(1.0, own * clients) * option.queue_seconds


def _lane(option: Option) -> tuple[str, str, int]:
    return option.worker, option.decode.model, option.decode.beams
