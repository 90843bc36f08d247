"""The health service for probes, on the main server and on a port of its own."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import structlog
from grpc import StatusCode, aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from shaperouter_service.rpc.server import HANDSHAKE_TIMEOUT, listen
from shaperouter_service.rpc.unix_sockets import claimed

log = structlog.get_logger(__name__)

# Maximum connections to the health port, where anybody can connect and probes need few. Further
# ones are closed at once, so that they cannot use up the descriptors that `max_connections`
# reserves. Connections end after CONNECTION_AGE seconds, with CONNECTION_GRACE for calls in
# progress.
MAX_CONNECTIONS, CONNECTION_AGE, CONNECTION_GRACE = 64, 30.0, 5.0


# Maximum streams of `Watch`, at about 26 kB each. Anybody can open them, and clients that check the
# health of their connections have one for each.
MAX_WATCHES = 4096


class Health:
    """Liveness and readiness of this process.

    The process is live as long as its event loop answers, because Kubernetes must not kill it
    during a drain or a compilation, or after the loss of a worker.
    """

    def __init__(self) -> None:
        """Reports nothing before `begin`."""
        self._servicer = _Servicer()

    def add_to(self, server: aio.Server) -> None:
        """Adds the health service to a server."""
        health_pb2_grpc.add_HealthServicer_to_server(self._servicer, server)

    def begin(self) -> None:
        """Reports live and not ready."""
        self._servicer.set("liveness", health_pb2.HealthCheckResponse.SERVING)
        self.set_ready(False)

    def set_ready(self, ready: bool) -> None:
        """Reports whether the process is ready, and notifies watchers."""
        status = health_pb2.HealthCheckResponse
        for name in ("", "readiness"):
            self._servicer.set(name, status.SERVING if ready else status.NOT_SERVING)


class _Servicer(health_pb2_grpc.HealthServicer):  # type: ignore[misc]  # it has no types
    """The health service. Only the event loop may use it.

    The servicer of grpcio-health-checking holds a lock while it writes to a watcher, so a watcher
    that reads nothing would block all others, and the shutdown.
    """

    def __init__(self) -> None:
        """Starts without services."""
        self._statuses: dict[str, health_pb2.HealthCheckResponse.ServingStatus] = {}
        self._changed = asyncio.Event()
        self._watches = 0

    def set(self, service: str, status: health_pb2.HealthCheckResponse.ServingStatus) -> None:
        """Sets the status of a service."""
        self._statuses[service] = status
        # Current waiters hold the old event; later ones will wait for the new one.
        self._changed.set()
        self._changed = asyncio.Event()

    async def Check(  # noqa: N802 (gRPC's name)
        self, request: health_pb2.HealthCheckRequest, context: aio.ServicerContext[Any, Any]
    ) -> health_pb2.HealthCheckResponse:
        """Returns the status of a service."""
        status = self._statuses.get(request.service)
        if status is None:
            await context.abort(StatusCode.NOT_FOUND)
        return health_pb2.HealthCheckResponse(status=status)

    async def Watch(  # noqa: N802 (gRPC's name)
        self, request: health_pb2.HealthCheckRequest, context: aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        """Sends the status of a service at once and after each change."""
        if self._watches >= MAX_WATCHES:
            # By gRFC A17, clients take a connection without this method for a healthy one.
            details = f"this process has its maximum of {MAX_WATCHES} watches"
            await context.abort(StatusCode.UNIMPLEMENTED, details)
        self._watches += 1
        try:
            async for status in self._changes(request.service):
                yield health_pb2.HealthCheckResponse(status=status)
        finally:
            self._watches -= 1

    async def _changes(
        self, service: str
    ) -> AsyncIterator[health_pb2.HealthCheckResponse.ServingStatus]:
        """Yields the status of a service at once and after each change."""
        sent = None
        while True:
            changed = self._changed
            status = self._statuses.get(service, health_pb2.HealthCheckResponse.SERVICE_UNKNOWN)
            if status != sent:
                sent = status
                yield status
            await changed.wait()


@contextlib.asynccontextmanager
async def serving_health(health: Health, address: str | None) -> AsyncIterator[None]:
    """Serves only health inside the context, without TLS and tokens.

    The probes of Kubernetes can use neither.

    Args:
        health: The health service.
        address: HOST:PORT or unix:PATH; None starts no server.

    Raises:
        StartupError: The address is in use or invalid.
    """
    health.begin()
    if address is None:
        yield
        return
    with claimed(address, option="health-listen"):
        server = aio.server(
            options=[
                ("grpc.so_reuseport", 0),
                ("grpc.max_allowed_incoming_connections", MAX_CONNECTIONS),
                ("grpc.server_handshake_timeout_ms", int(HANDSHAKE_TIMEOUT * 1000)),
                ("grpc.max_connection_age_ms", int(CONNECTION_AGE * 1000)),
                ("grpc.max_connection_age_grace_ms", int(CONNECTION_GRACE * 1000)),
            ]
        )
        health.add_to(server)
        port = listen(server, address, option="health-listen")
        await server.start()
        log.info("health listening", address=address, port=port)
        try:
            yield
        finally:
            await server.stop(None)
