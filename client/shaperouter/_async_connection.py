"""gRPC for asyncio. `_connection` has the same interface for blocking code."""

import asyncio
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import grpc
import grpc.aio

from shaperouter._async_exchange import AsyncExchange
from shaperouter._connection import errors
from shaperouter._endpoint import Endpoint, channel_options
from shaperouter._status import cancelled

ItemT = TypeVar("ItemT")
RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")
ResultT = TypeVar("ResultT")
StubsT = TypeVar("StubsT")

# One attempt at a call. Takes its timeout in seconds; None means no limit.
AsyncAttempt = Callable[[float | None], Awaitable[ResultT]]

if TYPE_CHECKING:
    AsyncStreamingCall = grpc.aio.UnaryStreamCall[Any, ResponseT] | AsyncExchange[ResponseT]


class AsyncCalls:
    """Calls that are cancelled together. A cancelled task cancels the call that it awaits."""

    def __init__(self) -> None:
        """Starts without calls."""
        self._cancelled = asyncio.Event()
        self._parts: weakref.WeakSet[AsyncCalls] = weakref.WeakSet()

    @property
    def cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._cancelled.is_set()

    async def send(
        self,
        method: "grpc.aio.UnaryUnaryMultiCallable[RequestT, ResponseT]",
        request: RequestT,
        timeout: float | None,
    ) -> ResponseT:
        """Makes a call and waits for its response.

        Raises:
            grpc.RpcError: The call failed.
            CallCancelledError: `cancel` was called.
        """
        if self.cancelled:
            raise cancelled()
        return await method(request, timeout=timeout)

    def start(
        self,
        begin: "Callable[[float | None], AsyncStreamingCall[ResponseT]]",
        timeout: float | None,
    ) -> "AsyncStreamingCall[ResponseT]":
        """Starts a streaming call, which `cancel` does not reach.

        Raises:
            CallCancelledError: `cancel` was called.
        """
        if self.cancelled:
            raise cancelled()
        return begin(timeout)

    async def pause(self, seconds: float) -> None:
        """Waits before the next attempt of a call.

        Raises:
            CallCancelledError: `cancel` was called.
        """
        try:
            await asyncio.wait_for(self._cancelled.wait(), seconds)
        except TimeoutError:
            return
        raise cancelled()

    def part(self) -> "AsyncCalls":
        """Calls that are cancelled with these, or by themselves."""
        part = AsyncCalls()
        self._parts.add(part)
        if self.cancelled:
            part.cancel()
        return part

    def cancel(self) -> None:
        """Ends pauses, and refuses all later calls."""
        self._cancelled.set()
        for part in self._parts:
            part.cancel()


class AsyncConnection(AsyncCalls, Generic[StubsT]):
    """A channel with its stubs and calls."""

    def __init__(self, endpoint: Endpoint, stubs: Callable[[grpc.aio.Channel], StubsT]) -> None:
        """Creates no channel yet: it belongs to the event loop that is running then."""
        super().__init__()
        self._endpoint = endpoint
        self._make_stubs = stubs
        self._channel: grpc.aio.Channel | None = None
        self._stubs: StubsT | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def stubs(self) -> StubsT:
        """The channel's stubs.

        Raises:
            RuntimeError: The connection is closed, no event loop is running, or it is another one
                than that of the channel.
        """
        if self.cancelled:
            raise RuntimeError("the client is closed")
        loop = asyncio.get_running_loop()
        if self._loop not in (None, loop):
            raise RuntimeError(
                "the client belongs to the event loop of its first call, but another one is "
                "running; make a client in each event loop"
            )
        if self._stubs is None:
            target, credentials = self._endpoint.address, self._endpoint.credentials
            options = channel_options(target)
            self._channel = (
                grpc.aio.secure_channel(target, credentials, options=options)
                if credentials
                else grpc.aio.insecure_channel(target, options=options)
            )
            self._stubs = self._make_stubs(self._channel)
            self._loop = loop
        return self._stubs

    async def gather(
        self,
        function: Callable[[AsyncCalls, ItemT], Awaitable[ResultT]],
        items: Sequence[ItemT],
        concurrency: int,
    ) -> list[ResultT]:
        """Applies a function to items concurrently.

        Args:
            function: Takes the calls to send with, and an item.
            items: At least one.
            concurrency: Maximum number of items in progress.
        """
        places = asyncio.Semaphore(concurrency)

        async def apply(item: ItemT) -> ResultT:
            async with places:
                return await function(self, item)

        return await asyncio.gather(*map(apply, items))

    async def close(self) -> None:
        """Closes the channel and cancels the calls in progress; may be called again."""
        self.cancel()
        if self._channel is not None:
            await self._channel.close()


def async_exchange(
    method: "grpc.aio.StreamStreamMultiCallable[RequestT, ResponseT]",
    requests: AsyncIterator[RequestT],
    timeout: float | None,
) -> AsyncExchange[ResponseT]:
    """Starts a call that sends a stream."""
    return AsyncExchange(method, requests, timeout)


async def read(call: "AsyncStreamingCall[ResponseT]") -> ResponseT:
    """Waits for the next response of a streaming call.

    Raises:
        StopAsyncIteration: The stream has ended.
        grpc.RpcError: The call failed.
    """
    if isinstance(call, AsyncExchange):
        return await anext(call)
    response = await call.read()
    if response is grpc.aio.EOF:
        raise StopAsyncIteration
    return cast("ResponseT", response)


@contextmanager
def async_errors(*, address: str, deadline: float | None) -> Iterator[None]:
    """Converts gRPC's errors inside the block into the client's.

    gRPC raises CancelledError in the task that awaits a cancelled call. That is an error of the
    call, unless the awaiting task was itself cancelled.
    """
    try:
        with errors(address=address, deadline=deadline):
            yield
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise cancelled() from None
