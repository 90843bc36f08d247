"""Quotas of clients: requests in flight, and tokens per minute."""

import contextlib
import time
from collections.abc import Iterator

from shaperouter_service.auth.clients import Client
from shaperouter_service.errors import ClientLimitError
from shaperouter_service.telemetry.auth import AuthMetrics, Limit

MINUTE = 60.0

# Seconds after which a client with too many requests should try again. One of its own has to end
# first, and nobody knows when.
RETRY = 1.0


class TokenBucket:
    """Tokens that a client may use per minute, on average.

    A full bucket has the tokens of a minute and refills continuously. The cost of a request is
    known only as it is read and generated, so the bucket may fall below zero: the client then waits
    until it has refilled.
    """

    def __init__(self) -> None:
        """Starts full."""
        self._used = 0.0  # tokens that have not been refilled
        self._at = time.monotonic()

    def use(self, tokens: int, *, per_minute: int) -> None:
        """Takes tokens out of the bucket.

        Args:
            tokens: Number of tokens.
            per_minute: Size of the bucket, and the tokens by which it refills in a minute.
        """
        self._refill(per_minute)
        self._used += tokens

    def seconds_until_token(self, per_minute: int) -> float:
        """Seconds until the bucket has a token again; 0 if it has one."""
        self._refill(per_minute)
        if self._used < per_minute:
            return 0.0
        return (self._used - per_minute + 1) * MINUTE / per_minute

    def _refill(self, per_minute: int) -> None:
        now = time.monotonic()
        self._used = max(0.0, self._used - (now - self._at) * per_minute / MINUTE)
        self._at = now


class ClientQuota:
    """What a client has used of its limits. Only the event loop may use it.

    Attributes:
        client: The client with its current limits; a changed file of tokens replaces it.
    """

    def __init__(self, client: Client, metrics: AuthMetrics) -> None:
        """Starts unused.

        Args:
            client: The client.
            metrics: Metrics that count refusals.
        """
        self.client = client
        self._metrics = metrics
        self._running = 0
        self._tokens = TokenBucket()

    @property
    def name(self) -> str:
        """The client's name."""
        return self.client.name

    @contextlib.contextmanager
    def admitted(self) -> Iterator[None]:
        """Counts a request inside the context.

        Raises:
            ClientLimitError: The client has its maximum of requests, or no tokens left.
        """
        requests, tokens = self.client.max_requests, self.client.tokens_per_minute
        if requests is not None and self._running >= requests:
            self._metrics.limited(self.name, Limit.REQUESTS)
            raise ClientLimitError(self.name, f"{requests} requests in flight", retry_after=RETRY)
        if tokens is not None and (wait := self._tokens.seconds_until_token(tokens)):
            self._metrics.limited(self.name, Limit.TOKENS)
            raise ClientLimitError(self.name, f"{tokens} tokens a minute", retry_after=wait)
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1

    def use(self, tokens: int) -> None:
        """Charges tokens of prompts and generations to the client."""
        if (per_minute := self.client.tokens_per_minute) is not None:
            self._tokens.use(tokens, per_minute=per_minute)
