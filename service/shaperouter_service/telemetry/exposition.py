"""Serving /metrics."""

from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    Info,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    start_http_server,
)

from shaperouter_service import __version__
from shaperouter_service.addresses import split_address
from shaperouter_service.errors import StartupError


def make_registry(role: str) -> CollectorRegistry:
    """Makes a registry with the usual metrics of a Python process, and what it is.

    Args:
        role: Of the process: serve, router or worker.
    """
    # Times of creation double the number of series and answer no question we have.
    disable_created_metrics()  # type: ignore[no-untyped-call]
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    build = Info("shaperouter_build", "The version that runs, and its role.", registry=registry)
    build.info({"version": __version__, "role": role})
    return registry


@contextmanager
def serve_metrics(registry: CollectorRegistry, address: str) -> Iterator[int]:
    """Serves /metrics over HTTP in a thread; yields the port.

    Raises:
        StartupError: The address is in use or is not one.
    """
    host, port = split_address(address, option="metrics-listen")
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise StartupError(
            f"metrics-listen: cannot listen on {address}: {error.strerror}"
        ) from error
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
