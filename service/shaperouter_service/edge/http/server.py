"""The HTTP server of a router, in the event loop of the gRPC server."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from shaperouter_service.edge.http.accepting import accepting
from shaperouter_service.edge.http.connection import Connection
from shaperouter_service.errors import StartupError
from shaperouter_service.rpc.addresses import split_address
from shaperouter_service.rpc.tls import ServerTls
from shaperouter_service.rpc.unix_sockets import claimed, socket_path
from shaperouter_service.telemetry.http_calls import HttpMetrics

OPTION = "http-listen"

# Connections that may wait to be accepted.
_BACKLOG = 1024
# Seconds that a connection without a request stays open, longer than the pools of usual clients
# keep one.
_KEEP_ALIVE = 75
# Seconds that answers get to leave when the server stops; requests have ended by then.
_FLUSH = 2


class _Server(uvicorn.Server):
    """A server that leaves signals to the router, and accepting to `accepting`."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listens on nothing."""
        self.servers = []
        self.started = True

    def make_protocol(self) -> asyncio.Protocol:
        """Makes what serves a connection."""
        return Connection(config=self.config, server_state=self.server_state, app_state={})

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Captures nothing."""
        yield


@contextlib.contextmanager
def bound(address: str) -> Iterator[socket.socket]:
    """Yields a socket that is bound to an address; closes it at the end, and removes its file.

    Args:
        address: HOST:PORT or unix:PATH.

    Raises:
        StartupError: The address is in use or invalid.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(claimed(address, option=OPTION))
        family, where = _located(address)
        listener = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(where)
        except OSError as error:
            raise _cannot_listen(address, error) from error
        if (path := socket_path(address)) is not None:
            # Unlike gRPC's, uvicorn's servers leave a socket that they did not bind themselves.
            stack.callback(path.unlink, missing_ok=True)
        yield listener


def _cannot_listen(address: str, error: OSError) -> StartupError:
    return StartupError(
        f"{OPTION}: cannot listen on {address}: {error.strerror}; set --{OPTION} to another "
        "address, or to off for no HTTP server"
    )


def port_of(listener: socket.socket) -> int:
    """The port of a bound socket; 0 for a Unix socket."""
    name = listener.getsockname()
    return int(name[1]) if isinstance(name, tuple) else 0


def _located(address: str) -> tuple[socket.AddressFamily, Any]:
    path = socket_path(address)
    if path is not None:
        return socket.AF_UNIX, str(path)
    host, port = split_address(address, option=OPTION)
    return socket.AF_INET6 if ":" in host else socket.AF_INET, (host, port)


@contextlib.asynccontextmanager
async def serving(
    app: ASGIApp,
    listener: socket.socket,
    *,
    tls: ServerTls | None,
    metrics: HttpMetrics,
    max_connections: int,
) -> AsyncIterator[None]:
    """Serves HTTP inside the context.

    Args:
        app: What answers requests.
        listener: A bound socket, which is closed at the end.
        tls: TLS settings of the server; None means plain text.
        metrics: Counts connections that could not be accepted.
        max_connections: Maximum number of connections; further ones wait.

    Raises:
        StartupError: A file of `tls` cannot be used, or another socket listens at the address.
    """
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=_FLUSH,
    )
    config.load()
    contexts = tls.contexts() if tls is not None else None
    listener.setblocking(False)
    try:
        # The first of several sockets that were bound to an address listens there, such as gRPC's.
        listener.listen(_BACKLOG)
    except OSError as error:
        raise _cannot_listen(f"port {port_of(listener)}", error) from error
    server = _Server(config)
    task = asyncio.create_task(server.serve())
    try:
        async with accepting(
            listener,
            server.make_protocol,
            tls=contexts,
            metrics=metrics,
            max_connections=max_connections,
            connections=lambda: len(server.server_state.connections),
        ):
            yield
    finally:
        server.should_exit = True
        await task
