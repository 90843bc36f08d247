"""How many calls a router handles at a time."""

import contextlib
from collections import Counter
from collections.abc import Iterator

from shaperouter_service.errors import TooManyCallsError


class CallPlaces:
    """Places for calls, shared fairly between clients. Belongs to the event loop.

    Each call takes memory until it ends, so their number is limited. A client alone can take half
    of the places, two a third each, and so on: there is always room for one more.
    """

    def __init__(self, limit: int) -> None:
        """Starts empty.

        Args:
            limit: Maximum of calls at a time.
        """
        self._limit = limit
        self._calls: Counter[str] = Counter()

    @property
    def taken(self) -> int:
        """How many there are calls for now."""
        return self._calls.total()

    @contextlib.contextmanager
    def take(self, client: str) -> Iterator[None]:
        """Holds a place inside of the context.

        Raises:
            TooManyCallsError: There is none left, or none for this client.
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
