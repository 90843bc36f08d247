"""gRPC for blocking code. `_async_connection` has the same interface for asyncio.

Everything else that a client does is written once, in the other modules `_async_*`;
`make blocking-client` generates the blocking modules from them.
"""

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import grpc

from shaperouter._endpoint import Endpoint, channel_options
from shaperouter._status import cancelled, error_of

ItemT = TypeVar("ItemT")
RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")
ResultT = TypeVar("ResultT")
StubsT = TypeVar("StubsT")

# One attempt at a call. Takes its timeout in seconds; None means no limit.
Attempt = Callable[[float | None], ResultT]

if TYPE_CHECKING:
    # gRPC's type for a streaming call exists only in its stubs.
    from grpc import _CallIterator

    StreamingCall = _CallIterator[ResponseT]


class Calls:
    """Calls that are cancelled together. Threads may share it."""

    def __init__(self) -> None:
        """Starts without calls."""
        self._cancelled = threading.Event()
        self._lock = threading.Lock()
        self._in_progress: set[Calls | grpc.Future[Any]] = set()
        self._parts: weakref.WeakSet[Calls] = weakref.WeakSet()

    @property
    def cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._cancelled.is_set()

    def send(
        self,
        method: "grpc.UnaryUnaryMultiCallable[RequestT, ResponseT]",
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
        try:
            return self._send(method, request, timeout)
        except (grpc.FutureCancelledError, ValueError):
            # gRPC raises ValueError for a call on a closed channel.
            if self.cancelled:
                raise cancelled() from None
            raise

    def start(
        self,
        begin: "Callable[[float | None], StreamingCall[ResponseT]]",
        timeout: float | None,
    ) -> "StreamingCall[ResponseT]":
        """Starts a streaming call, which `cancel` does not reach.

        Raises:
            CallCancelledError: `cancel` was called.
        """
        try:
            return begin(timeout)
        except ValueError:  # the channel is closed
            if self.cancelled:
                raise cancelled() from None
            raise

    def pause(self, seconds: float) -> None:
        """Waits before the next attempt of a call.

        Raises:
            CallCancelledError: `cancel` was called.
        """
        if self._cancelled.wait(seconds):
            raise cancelled()

    def part(self) -> "Calls":
        """Calls that are cancelled with these, or by themselves."""
        part = Calls()
        with self._lock:
            self._parts.add(part)
        if self.cancelled:
            part.cancel()
        return part

    def cancel(self) -> None:
        """Cancels the calls in progress and all later ones."""
        self._cancelled.set()
        with self._lock:
            calls = [*self._in_progress, *self._parts]
        for call in calls:
            call.cancel()

    def _send(
        self,
        method: "grpc.UnaryUnaryMultiCallable[RequestT, ResponseT]",
        request: RequestT,
        timeout: float | None,
    ) -> ResponseT:
        call = method.future(request, timeout=timeout)
        with self._tracked(call):
            return call.result()

    @contextmanager
    def _tracked(self, call: "Calls | grpc.Future[Any]") -> Iterator[None]:
        """Lets `cancel` reach a call until the end of the block, which cancels it, too."""
        with self._lock:
            self._in_progress.add(call)
        try:
            if self.cancelled:
                call.cancel()
            yield
        finally:
            with self._lock:
                self._in_progress.discard(call)
            call.cancel()  # no effect on a call that has ended


class Connection(Calls, Generic[StubsT]):
    """A channel with its stubs and calls."""

    def __init__(self, endpoint: Endpoint, stubs: Callable[[grpc.Channel], StubsT]) -> None:
        """Creates the channel without connecting."""
        super().__init__()
        target = endpoint.address
        # gRPC by itself repeats a call that a stopping service has not begun. If the next
        # connection fails, its blocking API then waits for the end of a stream forever (1.85).
        # `_retries.py` repeats such calls instead.
        options = [*channel_options(target), ("grpc.enable_retries", 0)]
        self._channel = (
            grpc.secure_channel(target, endpoint.credentials, options=options)
            if endpoint.credentials
            else grpc.insecure_channel(target, options=options)
        )
        self._stubs = stubs(self._channel)

    @property
    def stubs(self) -> StubsT:
        """The channel's stubs.

        Raises:
            RuntimeError: The connection is closed.
        """
        if self.cancelled:
            raise RuntimeError("the client is closed")
        return self._stubs

    def gather(
        self, function: Callable[[Calls, ItemT], ResultT], items: Sequence[ItemT], concurrency: int
    ) -> list[ResultT]:
        """Applies a function to items in threads; cancels its calls if this thread is interrupted.

        Args:
            function: Takes the calls to send with, and an item.
            items: At least one.
            concurrency: Maximum number of threads.
        """
        calls = Calls()
        with ThreadPoolExecutor(min(concurrency, len(items))) as pool, self._tracked(calls):
            return list(pool.map(partial(function, calls), items))

    def close(self) -> None:
        """Closes the channel and cancels the calls in progress; may be called again."""
        self.cancel()
        self._channel.close()

    def _send(
        self,
        method: "grpc.UnaryUnaryMultiCallable[RequestT, ResponseT]",
        request: RequestT,
        timeout: float | None,
    ) -> ResponseT:
        # Closing the channel cancels this call. A future would cost 0.2 ms more.
        return method(request, timeout=timeout)


def exchange(
    method: "grpc.StreamStreamMultiCallable[RequestT, ResponseT]",
    requests: Iterator[RequestT],
    timeout: float | None,
) -> "StreamingCall[ResponseT]":
    """Starts a call that sends a stream."""
    return method(requests, timeout=timeout)


def read(call: "StreamingCall[ResponseT]") -> ResponseT:
    """Waits for the next response of a streaming call.

    Raises:
        StopIteration: The stream has ended.
        grpc.RpcError: The call failed.
    """
    return next(call)


@contextmanager
def errors(*, address: str, deadline: float | None) -> Iterator[None]:
    """Converts gRPC's errors inside the block into the client's."""
    try:
        yield
    except grpc.RpcError as error:
        raise error_of(error, address=address, deadline=deadline) from error
