"""The maximum number of calls in progress."""

import contextlib
from collections import Counter
from collections.abc import Iterator

from shaperouter_service.errors import TooManyCallsError


class CallLimit:
    """Limits the calls in progress, fairly between clients. Only the event loop may use it.

    Each call takes memory until it ends. One client alone may have half of the calls, two a third
    each, and so on, so there is always room for another client.
    """

    def __init__(self, limit: int) -> None:
        """Starts empty.

        Args:
            limit: Maximum number of calls in progress.
        """
        self._limit = limit
        self._calls: Counter[str] = Counter()

    @property
    def in_progress(self) -> int:
        """Number of calls in progress."""
        return self._calls.total()

    @property
    def max_per_client(self) -> int:
        """Maximum number of calls in progress of a client while no other client calls."""
        return max(1, self._limit // 2)

    @contextlib.contextmanager
    def admitted(self, client: str) -> Iterator[None]:
        """Counts a call inside the context.

        Raises:
            TooManyCallsError: The limit is reached, in all or for this client.
        """
        calls = self._calls
        if calls.total() >= self._limit:
            raise TooManyCallsError(self._limit)
        clients = len(calls) + (client not in calls)
        share = max(1, self._limit // (clients + 1))
        if calls[client] >= share:
            raise TooManyCallsError(share, of_client=True)
        calls[client] += 1
        try:
            yield
        finally:
            calls[client] -= 1
            if not calls[client]:
                del calls[client]
