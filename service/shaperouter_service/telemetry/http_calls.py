"""Metrics of HTTP calls and connections; those of requests have models as labels, so are apart."""

import contextlib
import time
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram

from shaperouter_service.telemetry.series import remember_series

# Buckets in seconds, from a list of models to a long transcription.
_BOUNDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class HttpMetrics:
    """Counts and times the calls of the paths that exist, so that callers cannot add labels.

    Attributes:
        accept_failures: Failed attempts to accept a connection.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        """Registers the metrics."""
        self._handled = Counter(
            "http_server_requests",
            "Requests that have ended, by method, path and status; 499 if the caller left.",
            ["method", "path", "status"],
            registry=registry,
        )
        self._seconds = Histogram(
            "http_server_request_seconds",
            "Time from the start of a request to the end of its answer, in seconds.",
            ["method", "path"],
            buckets=_BOUNDS,
            registry=registry,
        )
        self.accept_failures = Counter(
            "http_server_accept_failures",
            "Failed attempts to accept a connection: too many are open, or no descriptor is free.",
            registry=registry,
        )
        remember_series([self._handled, self._seconds])

    @contextlib.contextmanager
    def counted(self, method: str, path: str, status: Callable[[], int]) -> Iterator[None]:
        """Counts a call inside the context, with the status that it has at the end."""
        started = time.monotonic()
        try:
            yield
        finally:
            self._handled.labels(method, path, str(status() or 500)).inc()
            self._seconds.labels(method, path).observe(time.monotonic() - started)
