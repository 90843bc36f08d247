"""Creating, binding and stopping the gRPC servers of routers and workers."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from types import MappingProxyType

from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpc import aio

from shaperouter_service.errors import StartupError
from shaperouter_service.rpc.addresses import split_address
from shaperouter_service.rpc.heartbeat import (
    CALLER_PING_INTERVAL,
    CALLER_PING_TIMEOUT,
    MIN_PING_INTERVAL,
)
from shaperouter_service.rpc.interceptor import (
    ErrorInterceptor,
    ParsingInterceptor,
    Within,
    WrapOnce,
)
from shaperouter_service.rpc.tls import ServerTls
from shaperouter_service.system.drain import Drain
from shaperouter_service.system.process import max_connections

# gRPC's default, made explicit: recordings arrive in pieces, and prompts are far smaller.
MAX_MESSAGE_BYTES = 4 * 1024 * 1024

# Seconds after which a caller is asked to use a new connection for its next calls; gRPC varies this
# by a tenth. Running calls continue on the old one. A new connection resolves the name again, so
# callers find added routers and leave those that are about to stop. It is longer than the 30 s for
# which gRPC caches a name, or callers might return to the same router.
CONNECTION_AGE = 40.0

# Maximum calls of a method that wait to be admitted or refused, at about 5 kB each and a thousand
# per second, and their maximum wait in seconds, which deadlines shorten.
MAX_PENDING_CALLS = 100_000
MAX_PENDING_SECONDS = 3600

# Time limit of a new connection's handshake in seconds; gRPC's default is two minutes.
HANDSHAKE_TIMEOUT = 20.0

# Seconds to send the last messages of ended calls, and to end calls that are not work.
FLUSH = 1.0


def make_server(
    services: Sequence[ServiceDescriptor],
    within: Within = lambda *_: contextlib.nullcontext(),
    *,
    outer: Sequence[aio.ServerInterceptor] = (),
    max_message_bytes: int = MAX_MESSAGE_BYTES,
    max_bytes: Mapping[str, int] = MappingProxyType({}),
    connection_age: float | None = None,
    connections: int | None = None,
) -> aio.Server:
    """Creates a server, which turns errors of its services into statuses.

    Args:
        services: The services that it will serve.
        within: Returns the context manager around a call, which may refuse it before parsing.
        outer: Interceptors that see calls first and see how they end.
        max_message_bytes: Maximum bytes of any message; gRPC refuses larger ones unread.
        max_bytes: Maximum bytes of a request, by the full name of its service, where that is less:
            what is above is read, and refused without parsing it.
        connection_age: Seconds after which connections are renewed; None means never.
        connections: Maximum number of connections; None means all that `max_connections` allows.
    """
    age = [("grpc.max_connection_age_ms", int(connection_age * 1000))] if connection_age else []
    logging.getLogger("grpc._cython.cygrpc").addFilter(_callers_cannot_cause)
    requests: dict[str, type[Message]] = {
        f"/{service.full_name}/{method.name}": GetMessageClass(method.input_type)
        for service in services
        for method in service.methods
    }
    limits = {
        f"/{service.full_name}/{method.name}": max_bytes[service.full_name]
        for service in services
        for method in service.methods
        if service.full_name in max_bytes
    }
    return aio.server(
        interceptors=[
            WrapOnce(
                [
                    *outer,
                    # Turns errors of the next ones into statuses.
                    ErrorInterceptor(within),
                    ParsingInterceptor(requests, limits),
                ]
            )
        ],
        options=[
            ("grpc.max_receive_message_length", max_message_bytes),
            # Otherwise a second process on the same port would get half of the calls.
            ("grpc.so_reuseport", 0),
            # Callers that wait long for a first token may ping.
            ("grpc.http2.min_ping_interval_without_data_ms", int(MIN_PING_INTERVAL * 1000)),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.keepalive_time_ms", int(CALLER_PING_INTERVAL * 1000)),
            # The option that has an effect; with grpc.keepalive_timeout_ms it stays a minute.
            ("grpc.http2.ping_timeout_ms", int(CALLER_PING_TIMEOUT * 1000)),
            # A call waits here until the event loop admits or refuses it. Above gRPC's default
            # limits, a thousand calls and 30 s, calls would end as CANCELLED without details.
            ("grpc.server.max_pending_requests", MAX_PENDING_CALLS),
            ("grpc.server.max_pending_requests_hard_limit", MAX_PENDING_CALLS),
            ("grpc.server_max_unrequested_time_in_server", MAX_PENDING_SECONDS),
            # Further connections are closed at once, because replacing a worker needs descriptors.
            ("grpc.max_allowed_incoming_connections", connections or max_connections()),
            ("grpc.server_handshake_timeout_ms", int(HANDSHAKE_TIMEOUT * 1000)),
            *age,
        ],
    )


def _callers_cannot_cause(record: logging.LogRecord) -> bool:
    """Whether a log line of gRPC is one that callers cannot cause.

    Callers can break a connection while a call writes to it; the call then ends as cancelled. They
    can also send metadata that is not UTF-8, which the line would show, even if it is a token.
    """
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, (aio.InternalError, UnicodeDecodeError))


@contextlib.asynccontextmanager
async def stopped_at_end(server: aio.Server, drain: Drain, *, grace: float) -> AsyncIterator[None]:
    """Stops a server at the end of the context.

    After a normal end, admitted work has `grace` seconds to finish, and new work is refused
    with an error. After an exception, the server stops at once.
    """
    try:
        yield
    except BaseException:
        await server.stop(None)
        raise
    loop = asyncio.get_running_loop()
    end = loop.time() + grace
    drain.begin()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout_at(end):
            await drain.done()
    await server.stop(min(FLUSH, max(0.0, end - loop.time())))


def listen(
    server: aio.Server, address: str, *, tls: ServerTls | None = None, option: str = "listen"
) -> int:
    """Binds a server and returns the port, 0 for a Unix socket.

    Args:
        server: The server.
        address: HOST:PORT or unix:PATH.
        tls: TLS settings of the server; None means plain text.
        option: Name of the option with the address, for errors.

    Raises:
        StartupError: The address is in use or invalid, or a file of `tls` cannot be used.
    """
    if not address.startswith(("unix:", "unix-abstract:")):
        split_address(address, option=option)
    credentials = tls.credentials() if tls else None
    try:
        if credentials:
            return server.add_secure_port(address, credentials)
        return server.add_insecure_port(address)
    except RuntimeError as error:
        raise StartupError(
            f"{option}: cannot listen on {address}: it is in use or not an address of this machine"
        ) from error
