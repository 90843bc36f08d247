"""Making gRPC servers, alike for router and worker."""

import contextlib
from collections.abc import AsyncIterator

from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpc import aio

from shaperouter_service.addresses import split_address
from shaperouter_service.errors import StartupError
from shaperouter_service.rpc.interceptor import ErrorInterceptor

# gRPC's own default, said aloud: a prompt is far below it, and what is above is refused unread.
MAX_MESSAGE_BYTES = 4 * 1024 * 1024


def make_server(services: list[ServiceDescriptor]) -> aio.Server:
    """Makes a server that turns the errors of these services into statuses."""
    requests: dict[str, type[Message]] = {
        f"/{service.full_name}/{method.name}": GetMessageClass(method.input_type)
        for service in services
        for method in service.methods
    }
    return aio.server(
        interceptors=[ErrorInterceptor(requests)],
        options=[
            ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
            # A second process on the same port would take half of the calls.
            ("grpc.so_reuseport", 0),
        ],
    )


@contextlib.asynccontextmanager
async def stopped_at_end(server: aio.Server, *, grace: float) -> AsyncIterator[None]:
    """Stops a server at the end of the context.

    After a normal end, running calls have `grace` seconds to finish; after an exception, none.
    """
    try:
        yield
    except BaseException:
        await server.stop(None)
        raise
    await server.stop(grace)


def listen(server: aio.Server, address: str) -> int:
    """Binds a server and returns the port, 0 for a Unix socket.

    Raises:
        StartupError: The address is in use or is not one.
    """
    if not address.startswith(("unix:", "unix-abstract:")):
        split_address(address, option="listen")
    try:
        return server.add_insecure_port(address)
    except RuntimeError as error:
        raise StartupError(
            f"listen: cannot listen on {address}: it is in use, or no address of this machine"
        ) from error
