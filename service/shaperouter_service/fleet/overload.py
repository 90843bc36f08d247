"""Overload protection: limits how long requests wait, so that admitted ones keep their speed."""

import contextlib
from collections import Counter, defaultdict
from collections.abc import Iterator

from shaperouter_service.errors import DeadlineTooShortError, OverloadedError
from shaperouter_service.routing.choice import WorkerOption

# Fraction of the expected time that a deadline must leave for a request to be tried. Below 1, so
# that an estimate that is too long does not refuse a request that could be served.
CERTAIN = 0.7


class OverloadGuard:
    """Refuses requests that would wait too long or end too late. For the event loop only.

    Requests whose estimates are only guesses are admitted; workers have bounded queues, and calls
    have deadlines.

    Waiting requests are counted for each lane of a worker and each of its models that answers once,
    because each has its own queue. A request counts as waiting from when it is sent until its first
    answer. Beam search and calls answer only at their end, so in their queues running requests
    count as waiting, too: a client's share is then that of all its requests there, and only the
    share matters.
    """

    def __init__(self, max_queue_seconds: float) -> None:
        """Starts without waiting requests.

        Args:
            max_queue_seconds: Maximum time that a request may be expected to wait for a slot.
        """
        self._limit = max_queue_seconds
        # Number of requests of each client, by `WorkerOption.queue`.
        self._waiting: defaultdict[tuple[str, str, int], Counter[str]] = defaultdict(Counter)

    @contextlib.contextmanager
    def waiting(self, client: str, option: WorkerOption) -> Iterator[None]:
        """Counts a request as waiting in the queue of an option, inside the context."""
        queue = option.queue
        self._waiting[queue][client] += 1
        try:
            yield
        finally:
            self._waiting[queue][client] -= 1
            if not self._waiting[queue][client]:
                del self._waiting[queue][client]
            if not self._waiting[queue]:
                del self._waiting[queue]

    def check(
        self,
        client: str,
        option: WorkerOption,
        *,
        device_seconds: float,
        seconds_left: float | None,
    ) -> None:
        """Admits a request or raises an error.

        Args:
            client: The client.
            option: The best option to serve the request.
            device_seconds: Minimum time that its own work takes.
            seconds_left: Seconds until its deadline, if it has one.

        Raises:
            OverloadedError: It would wait too long.
            DeadlineTooShortError: No option ends in time.
        """
        if not option.informed:
            return
        model, wait = option.tight.model, self._expected_wait(client, option)
        if wait > self._limit:
            raise OverloadedError(model, wait, self._limit)
        needed = wait + option.stall_seconds + device_seconds
        if seconds_left is not None and CERTAIN * needed > seconds_left:
            raise DeadlineTooShortError(
                model,
                queue=wait,
                compilation=option.stall_seconds,
                device=device_seconds,
                left=seconds_left,
            )

    def _expected_wait(self, client: str, option: WorkerOption) -> float:
        """Expected wait of a client's next request, in seconds.

        The workers' queues are fair: a client waits for its own requests and for as many of each
        other client. So a client with few requests is admitted even while another client floods the
        service.
        """
        waiting = self._waiting.get(option.queue, Counter())
        clients = len({*waiting, client})
        own = (waiting[client] + 1) / (waiting.total() + 1)
        return min(1.0, own * clients) * option.queue_seconds
