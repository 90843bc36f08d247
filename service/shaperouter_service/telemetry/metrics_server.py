"""The HTTP server of /metrics."""

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

# Maximum connections, each of which has a thread, and seconds from the start of a connection to its
# end. A scrape takes milliseconds.
MAX_CONNECTIONS, CONNECTION_SECONDS = 16, 10.0

# Pause in seconds after a connection could not be accepted for lack of descriptors.
NO_DESCRIPTOR_PAUSE = 0.5


def make_registry(role: str) -> CollectorRegistry:
    """Creates a registry with the usual metrics of a Python process, its version and its role.

    Args:
        role: Role of the process: serve, router or worker.
    """
    # Creation times would double the number of series, and nobody needs them.
    disable_created_metrics()  # type: ignore[no-untyped-call]  # it has no types
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    build = Info("shaperouter_build", "Version and role of this process.", registry=registry)
    build.info({"version": __version__, "role": role})
    return registry


class _Handler(WSGIRequestHandler):
    """A handler that does not log requests."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (its parent's name)
        """Logs nothing."""


class _Server(ThreadingMixIn, WSGIServer):
    """A server with a thread for each connection, and limits of their number and duration.

    A connection is closed after CONNECTION_SECONDS, also if its client sends or reads nothing.
    Above MAX_CONNECTIONS, the oldest one is closed, so that nobody can keep Prometheus out.
    """

    daemon_threads = True
    # Connections that may wait to be accepted; with the default of 5, others wait seconds in a
    # flood.
    request_queue_size = 128

    def __init__(self, *args: Any) -> None:
        """Starts without connections."""
        # Connections with their start times, oldest first.
        self._started: dict[socket.socket, float] = {}
        self._lock = threading.Lock()
        super().__init__(*args)

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accepts a connection."""
        try:
            return super().get_request()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                # The connection stays in the queue; without a pause, this would retry in a busy
                # loop.
                time.sleep(NO_DESCRIPTOR_PAUSE)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Handles a connection in a thread of its own."""
        with self._lock:
            above = max(0, len(self._started) + 1 - MAX_CONNECTIONS)
            for oldest in list(self._started)[:above]:
                self._end(oldest)
            self._started[request] = time.monotonic()
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Closes a handled connection."""
        with self._lock:
            self._started.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Ends connections over the time limit; called twice a second."""
        now = time.monotonic()
        with self._lock:
            for connection, started in list(self._started.items()):
                if now - started > CONNECTION_SECONDS:
                    self._end(connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Logs the error of a connection."""
        log.warning("metrics not served", peer=str(client_address), exc_info=sys.exception())

    def _end(self, connection: socket.socket) -> None:
        """Ends a connection; its thread, which reads or writes, then closes it."""
        del self._started[connection]
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def serve_metrics(registry: CollectorRegistry, address: str) -> Iterator[int]:
    """Serves /metrics over HTTP in a thread; yields the port.

    Raises:
        StartupError: The address is in use or invalid.
    """
    host, port = split_address(address, option="metrics-listen")
    try:
        family, *_, target = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        server_class: type[_Server] = type("Server", (_Server,), {"address_family": family})
        server = make_server(str(target[0]), port, make_wsgi_app(registry), server_class, _Handler)
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
