"""Letting calls in until a server drains, and knowing when the last of them has ended."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractContextManager

import grpc
from google.protobuf.descriptor import MethodDescriptor
from grpc import aio

from shaperouter_service.errors import StoppingError
from shaperouter_service.rpc.handlers import Context, Handler, surrounded


class Admission(aio.ServerInterceptor):
    """Counts the calls of a server's work, and refuses new ones once it is closed.

    gRPC by itself refuses calls to a server that stops without a word that programs could act on.
    Belongs to the event loop.
    """

    def __init__(
        self,
        work: Iterable[MethodDescriptor],
        within: Callable[[Context], AbstractContextManager[None]] = lambda _: (
            contextlib.nullcontext()
        ),
    ) -> None:
        """Lets everything in.

        Args:
            work: The methods that are work; calls of others are let through.
            within: What a call of work is handled within, which may refuse it.
        """
        self._within = within
        self._paths = {f"/{method.containing_service.full_name}/{method.name}" for method in work}
        self._running = 0
        self._closed = False
        self._idle = asyncio.Event()
        self._idle.set()

    def close(self) -> None:
        """Lets in no more calls."""
        self._closed = True

    async def emptied(self) -> None:
        """Waits until none of the calls that were let in is left."""
        await self._idle.wait()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """Wraps a method's handler."""
        handler = await continuation(handler_call_details)
        if handler_call_details.method not in self._paths:
            return handler
        return surrounded(handler, self._let_in)

    @contextlib.asynccontextmanager
    async def _let_in(self, context: Context) -> AsyncIterator[None]:
        if self._closed:
            raise StoppingError
        self._running += 1
        self._idle.clear()
        try:
            with self._within(context):
                yield
        finally:
            self._running -= 1
            if not self._running:
                self._idle.set()
