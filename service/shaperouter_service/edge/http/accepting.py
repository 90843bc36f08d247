"""Accepting of HTTP connections, also while no file descriptor is free.

asyncio's own servers are not used: when descriptors run out, one fails once for each place in the
listener's queue, logs each failure with a traceback, and starts a timer for each, so that the next
second costs as much again. With a queue of 1,024 that was 5,000 lines a second.
"""

import asyncio
import contextlib
import errno
import resource
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import structlog

from shaperouter_service.rpc.server import HANDSHAKE_TIMEOUT
from shaperouter_service.system.background import survive_errors
from shaperouter_service.telemetry.http_calls import HttpMetrics

log = structlog.get_logger(__name__)

# Seconds until the next attempt after a failed one. Meanwhile connections wait in the queue.
PAUSE = 0.5
# Minimum seconds between two lines about failures.
LOG_INTERVAL = 60.0


@contextlib.asynccontextmanager
async def accepting(
    listener: socket.socket,
    make_protocol: Callable[[], asyncio.Protocol],
    *,
    tls: Callable[[], ssl.SSLContext] | None,
    metrics: HttpMetrics,
    max_connections: int,
    connections: Callable[[], int],
) -> AsyncIterator[None]:
    """Accepts connections inside the context, and closes the listener at its end.

    Args:
        listener: A listening socket that does not block.
        make_protocol: Makes what serves a connection.
        tls: Gives the TLS settings of a new connection; None means plain text.
        metrics: Counts the failures.
        max_connections: Maximum number of connections; further ones wait.
        connections: Returns the number of connections after their handshakes.
    """
    acceptor = _Acceptor(
        listener,
        make_protocol,
        tls,
        metrics,
        max_connections=max_connections,
        connections=connections,
    )
    task = asyncio.create_task(acceptor.run())
    try:
        yield
    finally:
        task.cancel()
        # Not before it has ended: its event loop watches the listener.
        await asyncio.wait({task})
        listener.close()


class _Acceptor:
    """Accepts one connection in each turn of the event loop."""

    def __init__(
        self,
        listener: socket.socket,
        make_protocol: Callable[[], asyncio.Protocol],
        tls: Callable[[], ssl.SSLContext] | None,
        metrics: HttpMetrics,
        *,
        max_connections: int,
        connections: Callable[[], int],
    ) -> None:
        self._listener, self._make_protocol = listener, make_protocol
        self._tls, self._metrics = tls, metrics
        self._max_connections, self._connections = max_connections, connections
        self._handshakes = 0
        self._logged_at: float | None = None
        self._unlogged = 0
        # When the present shortage was logged; None if there is none, or it was not.
        self._short_since: float | None = None

    async def run(self) -> None:
        """Accepts connections until it is cancelled, which ends handshakes in progress."""
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as handshakes:
            while True:
                if self._connections() + self._handshakes >= self._max_connections:
                    await self._caller()
                    self._failed("too many connections", max_connections=self._max_connections)
                    await asyncio.sleep(PAUSE)
                    continue
                try:
                    connection, _ = await loop.sock_accept(self._listener)
                except ConnectionAbortedError:
                    # The caller has left the queue.
                    continue
                except OSError as error:
                    self._failed(str(error.strerror), **_limit(error))
                    await asyncio.sleep(PAUSE)
                    continue
                self._accepted()
                handshakes.create_task(self._connect(connection))
                # If connections arrive faster than this loop accepts them, others get a turn.
                await asyncio.sleep(0)

    async def _caller(self) -> None:
        """Waits until somebody waits to be accepted."""
        loop, waits = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._listener, waits.set)
        try:
            await waits.wait()
        finally:
            loop.remove_reader(self._listener)

    async def _connect(self, connection: socket.socket) -> None:
        # A caller that leaves during the handshake, or has no certificate, concerns nobody else.
        self._handshakes += 1
        with survive_errors("connecting HTTP callers"), contextlib.suppress(OSError):
            await asyncio.get_running_loop().connect_accepted_socket(
                self._make_protocol,
                connection,
                ssl=self._tls() if self._tls else None,
                ssl_handshake_timeout=HANDSHAKE_TIMEOUT if self._tls else None,
            )
        self._handshakes -= 1

    def _failed(self, reason: str, **limit: Any) -> None:
        self._metrics.accept_failures.inc()
        self._unlogged += 1
        now = time.monotonic()
        if self._logged_at is not None and now - self._logged_at < LOG_INTERVAL:
            return
        log.warning(
            "HTTP connections wait: one could not be accepted",
            reason=reason,
            **limit,
            failures=self._unlogged,
            next_line_after_seconds=LOG_INTERVAL,
        )
        self._logged_at = self._short_since = now
        self._unlogged = 0

    def _accepted(self) -> None:
        if self._short_since is None:
            return
        seconds = round(time.monotonic() - self._short_since, 3)
        log.info("HTTP connections are accepted again", after_seconds=seconds)
        self._short_since = None


def _limit(error: OSError) -> dict[str, Any]:
    """The limit that a failure has met, for the log."""
    if error.errno == errno.EMFILE:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return {"limit": "RLIMIT_NOFILE", "value": soft}
    # Its value is in a file, which nobody can open now.
    return {"limit": "fs.file-max"} if error.errno == errno.ENFILE else {}
