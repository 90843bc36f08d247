"""The health service, for probes: on a server that has others, and on a port of its own."""

import contextlib
from collections.abc import AsyncIterator

import structlog
from grpc import aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from shaperouter_service.rpc.server import listen

log = structlog.get_logger(__name__)


class Health:
    """What a process says of itself: that it lives, and whether it is ready.

    Liveness holds for as long as the event loop answers: a drain, a compilation or a lost worker
    must not make Kubernetes kill the process.
    """

    def __init__(self) -> None:
        """Says neither before `begin`."""
        self._servicer = health.aio.HealthServicer()

    def add_to(self, server: aio.Server) -> None:
        """Serves it with what a server has besides."""
        health_pb2_grpc.add_HealthServicer_to_server(self._servicer, server)

    async def begin(self) -> None:
        """It lives, and is not ready."""
        await self._servicer.set("liveness", health_pb2.HealthCheckResponse.SERVING)
        await self.set_ready(False)

    async def set_ready(self, ready: bool) -> None:
        """Says whether it is ready; to all that watch, too."""
        status = health_pb2.HealthCheckResponse
        for name in ("", "readiness"):
            await self._servicer.set(name, status.SERVING if ready else status.NOT_SERVING)


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
    await health.begin()
    if address is None:
        yield
        return
    server = aio.server(options=[("grpc.so_reuseport", 0)])
    health.add_to(server)
    port = listen(server, address, option="health-listen")
    await server.start()
    log.info("health listening", address=address, port=port)
    try:
        yield
    finally:
        await server.stop(None)
