"""What clients have used of what they may."""

import contextlib
import time
from collections.abc import Iterator

from shaperouter_service.auth.clients import Client
from shaperouter_service.errors import ClientLimitError
from shaperouter_service.telemetry.access import AccessMetrics, Limit

# Seconds over which the limit of tokens is meant.
MINUTE = 60.0

# Seconds after which one with too many requests should try again: one of its own has to end first,
# and nobody knows when.
RETRY = 1.0


class Account:
    """What one client has used: requests in flight, and tokens.

    Tokens are paid for as they are read and made, since nobody knows before how many there will
    be: a request is let in while anything is left, and what it takes beyond is a debt that has to
    be worn off first. Belongs to the event loop.

    Attributes:
        client: Whose it is, with the limits that hold now.
    """

    def __init__(self, client: Client, metrics: AccessMetrics) -> None:
        """Nothing is used."""
        self.client = client
        self._metrics = metrics
        self._running = 0
        self._used = 0.0  # tokens, less what time has worn off
        self._at = time.monotonic()

    @property
    def name(self) -> str:
        """The client's name."""
        return self.client.name

    @contextlib.contextmanager
    def let_in(self) -> Iterator[None]:
        """Holds a place for a request inside of the context.

        Raises:
            ClientLimitError: The client has none, or no tokens left.
        """
        requests, tokens = self.client.max_requests, self.client.tokens_per_minute
        if requests is not None and self._running >= requests:
            self._metrics.limited(self.client.name, Limit.REQUESTS)
            raise ClientLimitError(
                self.client.name, f"{requests} requests in flight", retry_after=RETRY
            )
        self._wear_off(tokens)
        if tokens is not None and self._used >= tokens:
            self._metrics.limited(self.client.name, Limit.TOKENS)
            raise ClientLimitError(
                self.client.name,
                f"{tokens} tokens a minute",
                # Until there is one token again.
                retry_after=(self._used - tokens + 1) * MINUTE / tokens,
            )
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1

    def use(self, tokens: int) -> None:
        """Pays for tokens."""
        self._used += tokens

    def _wear_off(self, tokens_per_minute: int | None) -> None:
        now = time.monotonic()
        if tokens_per_minute is not None:
            worn = (now - self._at) * tokens_per_minute / MINUTE
            self._used = max(0.0, self._used - worn)
        self._at = now


class Accounts:
    """Those of all clients of one router: each router counts for itself.

    They outlive a change of the file, which changes limits and not what was used.
    """

    def __init__(self, metrics: AccessMetrics) -> None:
        """Nothing is used."""
        self._metrics = metrics
        self._of: dict[str, Account] = {}

    def of(self, client: Client) -> Account:
        """That of a client."""
        account = self._of.get(client.name)
        if account is None:
            account = self._of[client.name] = Account(client, self._metrics)
            self._metrics.knows(client.name)
        account.client = client
        return account
