"""Making gRPC servers, alike for router and worker."""

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
from shaperouter_service.rpc.interceptor import ErrorInterceptor, ParsingInterceptor, Within
from shaperouter_service.rpc.tls import ServerTls
from shaperouter_service.system.admission import Admission
from shaperouter_service.system.process import max_connections

# gRPC's own default, said aloud: recordings come in pieces, and prompts are far below it.
MAX_MESSAGE_BYTES = 4 * 1024 * 1024

# Seconds after which a caller's connection is told to make its next calls on a new one; gRPC adds
# or takes a tenth. What runs on it goes on. A new connection goes where routers are now: so callers
# find those that were added, and leave those that are about to go before these take no more
# requests. It is longer than the 30 s for which gRPC keeps what a name stood for, or callers might
# come back.
CONNECTION_AGE = 40.0

# Calls of a method that may wait to be let in or refused: some 5 kB each, and taken at a thousand a
# second or so. And the seconds for which they may: deadlines end them sooner.
MAX_PENDING_CALLS = 100_000
MAX_PENDING_SECONDS = 3600

# Seconds that a new connection has to say what it is; gRPC's default is two minutes.
HANDSHAKE_TIMEOUT = 20.0

# Seconds for the last words of calls that have ended to leave, and for calls that are no work to be
# told to end.
FLUSH = 1.0


def make_server(
    services: list[ServiceDescriptor],
    within: Within = lambda *_: contextlib.nullcontext(),
    *,
    outer: Sequence[aio.ServerInterceptor] = (),
    max_message_bytes: int = MAX_MESSAGE_BYTES,
    max_bytes: Mapping[str, int] = MappingProxyType({}),
    connection_age: float | None = None,
) -> aio.Server:
    """Makes a server that turns the errors of these services into statuses.

    Args:
        services: What it serves.
        within: What calls are handled in, before anything of them is parsed; may refuse them.
        outer: What sees calls first, and how they end.
        max_message_bytes: Maximum bytes of any message: what is above is refused unread, by gRPC.
        max_bytes: Maximum bytes of a request, by the full name of its service, where that is less:
            what is above is read, and refused without parsing it.
        connection_age: Seconds after which connections are renewed; None leaves them as they are.
    """
    age = [("grpc.max_connection_age_ms", int(connection_age * 1000))] if connection_age else []
    logging.getLogger("grpc._cython.cygrpc").addFilter(_is_ours)
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
            *outer,
            # What the next ones raise becomes a status.
            ErrorInterceptor(within),
            ParsingInterceptor(requests, limits),
        ],
        options=[
            ("grpc.max_receive_message_length", max_message_bytes),
            # A second process on the same port would take half of the calls.
            ("grpc.so_reuseport", 0),
            # Who waits long for a first token may well ask whether we are still there.
            ("grpc.http2.min_ping_interval_without_data_ms", int(MIN_PING_INTERVAL * 1000)),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.keepalive_time_ms", int(CALLER_PING_INTERVAL * 1000)),
            # What gRPC goes by; grpc.keepalive_timeout_ms leaves it at a minute.
            ("grpc.http2.ping_timeout_ms", int(CALLER_PING_TIMEOUT * 1000)),
            # A call waits here until the event loop takes it, which then lets it in or refuses it.
            # gRPC's own limits are a thousand calls and 30 s, and end what is beyond as CANCELLED,
            # without a word that programs could act on.
            ("grpc.server.max_pending_requests", MAX_PENDING_CALLS),
            ("grpc.server.max_pending_requests_hard_limit", MAX_PENDING_CALLS),
            ("grpc.server_max_unrequested_time_in_server", MAX_PENDING_SECONDS),
            # Beyond this, connections are closed at once: without descriptors, no worker could be
            # replaced.
            ("grpc.max_allowed_incoming_connections", max_connections()),
            ("grpc.server_handshake_timeout_ms", int(HANDSHAKE_TIMEOUT * 1000)),
            *age,
        ],
    )


def _is_ours(record: logging.LogRecord) -> bool:
    """Whether what gRPC logs is something else than what any caller can have it log.

    A connection that ended while a call wrote to it: the call ends like others that their callers
    cancel. Metadata that is no UTF-8: it is read as Latin-1, and the line would show it, be it a
    token.
    """
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, (aio.InternalError, UnicodeDecodeError))


@contextlib.asynccontextmanager
async def stopped_at_end(
    server: aio.Server, admission: Admission, *, grace: float
) -> AsyncIterator[None]:
    """Stops a server at the end of the context.

    After a normal end, work that was let in has `grace` seconds to finish, and new work is refused
    with a status that says so; after an exception, there is no time for either.
    """
    try:
        yield
    except BaseException:
        await server.stop(None)
        raise
    loop = asyncio.get_running_loop()
    end = loop.time() + grace
    admission.close()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout_at(end):
            await admission.emptied()
    await server.stop(min(FLUSH, max(0.0, end - loop.time())))


def listen(
    server: aio.Server, address: str, *, tls: ServerTls | None = None, option: str = "listen"
) -> int:
    """Binds a server and returns the port, 0 for a Unix socket.

    Args:
        server: What is bound.
        address: HOST:PORT or unix:PATH.
        tls: What it shows and asks; None speaks plain text.
        option: That the address comes from.

    Raises:
        StartupError: The address is in use or is not one, or a file of `tls` cannot be used.
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
