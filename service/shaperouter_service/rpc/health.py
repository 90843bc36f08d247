"""The health service, for probes: on a server that has others, and on a port of its own."""

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

# Connections to a port for health alone: probes have one for a moment each, and anybody can connect
# there. More are closed at once, or they could take the descriptors that `max_connections` leaves.
# And the seconds that one lasts: after that, it is told to end, and soon ended.
MAX_CONNECTIONS, CONNECTION_AGE, CONNECTION_GRACE = 64, 30.0, 5.0


class Health:
    """What a process says of itself: that it lives, and whether it is ready.

    Liveness holds for as long as the event loop answers: a drain, a compilation or a lost worker
    must not make Kubernetes kill the process.
    """

    def __init__(self) -> None:
        """Says neither before `begin`."""
        self._servicer = _Servicer()

    def add_to(self, server: aio.Server) -> None:
        """Serves it with what a server has besides."""
        health_pb2_grpc.add_HealthServicer_to_server(self._servicer, server)

    def begin(self) -> None:
        """It lives, and is not ready."""
        self._servicer.set("liveness", health_pb2.HealthCheckResponse.SERVING)
        self.set_ready(False)

    def set_ready(self, ready: bool) -> None:
        """Says whether it is ready; to all that watch, too."""
        status = health_pb2.HealthCheckResponse
        for name in ("", "readiness"):
            self._servicer.set(name, status.SERVING if ready else status.NOT_SERVING)


class _Servicer(health_pb2_grpc.HealthServicer):  # type: ignore[misc]  # it has no types
    """The service itself. Belongs to the event loop.

    That of grpcio-health-checking holds a lock while it writes to a watcher: one that takes no data
    would keep everybody from hearing of a change, and the process from stopping.
    """

    def __init__(self) -> None:
        """Knows of nothing."""
        self._statuses: dict[str, health_pb2.HealthCheckResponse.ServingStatus] = {}
        self._changed = asyncio.Event()

    def set(self, service: str, status: health_pb2.HealthCheckResponse.ServingStatus) -> None:
        """Says how a service is."""
        self._statuses[service] = status
        # Those who wait hold the old event; those to come will wait for the new one.
        self._changed.set()
        self._changed = asyncio.Event()

    async def Check(  # noqa: N802 (gRPC's name)
        self, request: health_pb2.HealthCheckRequest, context: aio.ServicerContext[Any, Any]
    ) -> health_pb2.HealthCheckResponse:
        """Tells how a service is."""
        status = self._statuses.get(request.service)
        if status is None:
            await context.abort(StatusCode.NOT_FOUND)
        return health_pb2.HealthCheckResponse(status=status)

    async def Watch(  # noqa: N802 (gRPC's name)
        self, request: health_pb2.HealthCheckRequest, context: aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        """Tells how a service is, at once and after changes."""
        told = None
        while True:
            changed = self._changed
            status = self._statuses.get(
                request.service, health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
            )
            if status != told:
                told = status
                yield health_pb2.HealthCheckResponse(status=status)
            await changed.wait()


@contextlib.asynccontextmanager
async def serving_health(health: Health, address: str | None) -> AsyncIterator[None]:
    """Serves health alone inside of the context, in plain text and for all.

    The probes of Kubernetes speak neither TLS nor have they tokens.

    Args:
        health: What is served.
        address: HOST:PORT or unix:PATH; None serves nothing.

    Raises:
        StartupError: The address is in use or is not one.
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
