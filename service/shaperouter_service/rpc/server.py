"""Making gRPC servers, alike for router and worker."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpc import aio

from shaperouter_service.addresses import split_address
from shaperouter_service.errors import StartupError
from shaperouter_service.rpc.admission import Admission
from shaperouter_service.rpc.heartbeat import LEAST_PING_INTERVAL
from shaperouter_service.rpc.interceptor import ErrorInterceptor
from shaperouter_service.rpc.tls import ServerTls

# gRPC's own default, said aloud: a prompt is far below it, and what is above is refused unread.
MAX_MESSAGE_BYTES = 4 * 1024 * 1024

# Seconds after which a caller's connection is told to make its next calls on a new one; gRPC adds
# or takes a tenth. What runs on it goes on. A new connection goes where routers are now: so callers
# find those that were added, and leave those that are about to go before these take no more
# requests. It is longer than the 30 s for which gRPC keeps what a name stood for, or callers might
# come back.
CONNECTION_AGE = 40.0

# Seconds for the last words of calls that have ended to leave, and for calls that are no work to be
# told to end.
FLUSH = 1.0


def make_server(
    services: list[ServiceDescriptor],
    admission: Admission | None = None,
    outer: Sequence[aio.ServerInterceptor] = (),
    *,
    connection_age: float | None = None,
) -> aio.Server:
    """Makes a server that turns the errors of these services into statuses.

    Args:
        services: What it serves.
        admission: Lets in the calls that are its work.
        outer: What sees calls first, before anything of them is parsed.
        connection_age: Seconds after which connections are renewed; None leaves them as they are.
    """
    age = [("grpc.max_connection_age_ms", int(connection_age * 1000))] if connection_age else []
    requests: dict[str, type[Message]] = {
        f"/{service.full_name}/{method.name}": GetMessageClass(method.input_type)
        for service in services
        for method in service.methods
    }
    return aio.server(
        # In this order, so that what the last refuses becomes a status, too.
        interceptors=[*outer, ErrorInterceptor(requests), *([admission] if admission else [])],
        options=[
            ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
            # A second process on the same port would take half of the calls.
            ("grpc.so_reuseport", 0),
            # Who waits long for a first token may well ask whether we are still there.
            ("grpc.http2.min_ping_interval_without_data_ms", int(LEAST_PING_INTERVAL * 1000)),
            ("grpc.keepalive_permit_without_calls", 1),
            *age,
        ],
    )


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
            f"{option}: cannot listen on {address}: it is in use, or no address of this machine"
        ) from error
