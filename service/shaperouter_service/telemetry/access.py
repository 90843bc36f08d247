"""Metrics of who calls, where tokens say so."""

from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter


class Refusal(StrEnum):
    """Why a call was not let in."""

    MISSING = "missing"  # no token
    UNKNOWN = "unknown"  # a token of nobody
    NOT_OPERATOR = "not_operator"  # a token of a client that may not do this


class Limit(StrEnum):
    """What a client had too much of."""

    REQUESTS = "requests"  # in flight
    TOKENS = "tokens"  # a minute


class AccessMetrics:
    """The metrics of clients, for one router. Their names are those of the file of tokens."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Registers them."""
        self._failures = Counter(
            "shaperouter_authentication_failures",
            "Calls refused because of their token: it was missing or unknown, or its client may "
            "not make this call (not_operator).",
            ["reason"],
            registry=registry,
        )
        for reason in Refusal:
            self._failures.labels(reason)
        self._limited = Counter(
            "shaperouter_client_limited",
            "Requests refused by a limit of their client: requests in flight (requests), or tokens "
            "per minute (tokens).",
            ["client", "limit"],
            registry=registry,
        )

    def knows(self, client: str) -> None:
        """A client may call from now on: what is counted of it begins at zero."""
        for limit in Limit:
            self._limited.labels(client, limit)

    def refused(self, reason: Refusal) -> None:
        """A call was not let in."""
        self._failures.labels(reason).inc()

    def limited(self, client: str, limit: Limit) -> None:
        """A client's request was not let in."""
        self._limited.labels(client, limit).inc()
