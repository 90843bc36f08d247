"""Serving /metrics."""

import contextlib
import errno
import socket
import sys
import threading
import time
from collections.abc import Iterator
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import structlog
from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    Info,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    make_wsgi_app,
)

from shaperouter_service import __version__
from shaperouter_service.errors import StartupError
from shaperouter_service.rpc.addresses import split_address

log = structlog.get_logger(__name__)

# Connections at a time: each has a thread. And seconds that one has, from its beginning to
# its end: a scrape takes some milliseconds.
MAX_CONNECTIONS, CONNECTION_SECONDS = 16, 10.0

# Seconds before a connection is accepted again once there was no descriptor for one.
NO_DESCRIPTOR_PAUSE = 0.5


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
    build = Info("shaperouter_build", "Version and role of this process.", registry=registry)
    build.info({"version": __version__, "role": role})
    return registry


class _Handler(WSGIRequestHandler):
    """Logs no requests."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (its parent's name)
        """Logs nothing."""


class _Server(ThreadingMixIn, WSGIServer):
    """A server with a thread for each of a few connections, none of which lasts long.

    A connection that says nothing, or reads nothing, is closed after CONNECTION_SECONDS. If there
    are MAX_CONNECTIONS and a new one comes, the oldest is closed, so that nobody keeps Prometheus
    out.
    """

    daemon_threads = True
    # Connections that wait to be accepted: with the usual 5, a flood has others wait for seconds.
    request_queue_size = 128

    def __init__(self, *args: Any) -> None:
        """Starts without connections."""
        # Connections with the time at which they came, oldest first.
        self._came: dict[socket.socket, float] = {}
        self._lock = threading.Lock()
        super().__init__(*args)

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accepts a connection."""
        try:
            return super().get_request()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                # It stays to be accepted: without a pause, this would try again all the time.
                time.sleep(NO_DESCRIPTOR_PAUSE)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Handles a connection in a thread of its own."""
        with self._lock:
            for oldest in list(self._came)[: len(self._came) + 1 - MAX_CONNECTIONS]:
                self._end(oldest)
            self._came[request] = time.monotonic()
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Closes a connection that was handled."""
        with self._lock:
            self._came.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Ends connections that have taken too long; called twice a second."""
        now = time.monotonic()
        with self._lock:
            for connection, came in list(self._came.items()):
                if now - came > CONNECTION_SECONDS:
                    self._end(connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Logs what went wrong with a connection."""
        log.warning("metrics not served", peer=str(client_address), exc_info=sys.exception())

    def _end(self, connection: socket.socket) -> None:
        """Ends a connection; its thread, which reads or writes, then closes it."""
        del self._came[connection]
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def serve_metrics(registry: CollectorRegistry, address: str) -> Iterator[int]:
    """Serves /metrics over HTTP in a thread; yields the port.

    Raises:
        StartupError: The address is in use or is not one.
    """
    host, port = split_address(address, option="metrics-listen")
    try:
        family, *_, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        server_class: type[_Server] = type("Server", (_Server,), {"address_family": family})
        server = make_server(str(place[0]), port, make_wsgi_app(registry), server_class, _Handler)
    except OSError as error:
        raise StartupError(
            f"metrics-listen: cannot listen on {address}: {error.strerror}"
        ) from error
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
