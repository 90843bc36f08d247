"""Metrics of authentication and of clients' quotas."""

from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter


class Refusal(StrEnum):
    """Why a call was refused for its token."""

    MISSING = "missing"  # no token
    UNKNOWN = "unknown"  # a token of no client
    NOT_OPERATOR = "not_operator"  # a client that may not make this call


class Limit(StrEnum):
    """The limit that a client reached."""

    REQUESTS = "requests"  # in flight
    TOKENS = "tokens"  # a minute


class AuthMetrics:
    """Metrics of one router's clients, which have the names of the file of tokens."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Registers the metrics."""
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

    def add_client(self, client: str) -> None:
        """Starts the counts of a client at zero."""
        for limit in Limit:
            self._limited.labels(client, limit)

    def refused(self, reason: Refusal) -> None:
        """Counts a refused call."""
        self._failures.labels(reason).inc()

    def limited(self, client: str, limit: Limit) -> None:
        """Counts a request refused by a limit of its client."""
        self._limited.labels(client, limit).inc()
