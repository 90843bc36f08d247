"""Overload: what a router lets wait, so that what it has let in keeps its speed."""

import contextlib
from collections import Counter
from collections.abc import Iterator

from shaperouter_service.errors import DeadlineTooShortError, OverloadedError
from shaperouter_service.routing.decision import Option

# Of an expected time, what a deadline must leave for the request to be tried: an estimate that is
# too long must not refuse what could be served.
CERTAIN = 0.7


class OverloadGuard:
    """Refuses at once what would wait too long or end too late. Belongs to the event loop.

    What rests on guesses alone is let in: workers have bounded queues, and calls their deadlines.
    """

    def __init__(self, max_queue_seconds: float) -> None:
        """Starts with nobody waiting.

        Args:
            max_queue_seconds: Longest that a request may be expected to wait for a slot.
        """
        self._limit = max_queue_seconds
        self._waiting: Counter[str] = Counter()

    @contextlib.contextmanager
    def waiting(self, client: str) -> Iterator[None]:
        """Counts a request among those of its client that wait, inside of the context."""
        self._waiting[client] += 1
        try:
            yield
        finally:
            self._waiting[client] -= 1
            if not self._waiting[client]:
                del self._waiting[client]

    def check_queue(self, client: str, model: str, option: Option) -> None:
        """Lets a request wait, or does not.

        Args:
            client: Who asks.
            model: What for.
            option: The best way there is to serve it.

        Raises:
            OverloadedError: It would wait too long.
        """
        clients = len({*self._waiting, client})
        own = (self._waiting[client] + 1) / (self._waiting.total() + 1)
        # The workers' queues are fair: a client waits for its own requests and for as many of each
        # other client, so who asks for little is let in behind any flood.
        expected = min(1.0, own * clients) * option.queue_seconds
        if option.informed and expected > self._limit:
            raise OverloadedError(model, expected, self._limit)

    @staticmethod
    def check_deadline(
        model: str, option: Option, *, least_share: float, seconds_left: float | None
    ) -> None:
        """Lets a request start, or does not.

        Args:
            model: What it is for.
            option: The best way there is to serve it.
            least_share: Of its tokens, what must be made before it can end.
            seconds_left: Until its deadline, if it has one.

        Raises:
            DeadlineTooShortError: No option ends in time.
        """
        expected = option.first_seconds + least_share * option.decode_seconds
        if seconds_left is None or not option.informed:
            return
        if CERTAIN * expected > seconds_left:
            raise DeadlineTooShortError(model, expected, seconds_left)
