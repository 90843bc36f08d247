"""A call that sends a stream, for asyncio."""

import asyncio
import contextlib
import copy
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from typing import Any, Generic, TypeVar, cast

import grpc
import grpc.aio

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")
_ValueT = TypeVar("_ValueT")

# gRPC's text for an operation that its core has refused.
_REFUSED = "Internal error from Core"

# Seconds to wait for the service's status after a write has failed. It is normally on its way.
_PATIENCE = 1.0


class _ServiceStatus:
    """The first status of a call that does not report a failed write."""

    def __init__(self) -> None:
        self.error: grpc.aio.AioRpcError | None = None
        self.arrived = asyncio.Event()

    def add(self, call: "grpc.aio.StreamStreamCall[Any, Any]") -> None:
        """Takes the present status of a call that has one; gRPC calls this for each."""
        error = grpc.aio.AioRpcError(
            _value(call.code()),
            _value(call.initial_metadata()),
            _value(call.trailing_metadata()),
            details=_value(call.details()),
        )
        if self.error is None and not _is_failed_write(error):
            self.error = error
            self.arrived.set()


class _Requests(Generic[RequestT]):
    """The requests of a call, until the call ends.

    gRPC's task that sends them waits for the next one even afterwards. A microphone, for example,
    would then stay open.
    """

    def __init__(self, source: AsyncIterator[RequestT]) -> None:
        self._source = source
        self._sender: asyncio.Task[Any] | None = None

    async def __aiter__(self) -> AsyncIterator[RequestT]:
        self._sender = asyncio.current_task()
        try:
            async for request in self._source:
                yield request
        finally:
            if isinstance(self._source, AsyncGenerator):
                await self._source.aclose()

    def end(self, call: "grpc.aio.StreamStreamCall[Any, Any]") -> None:
        """Ends them; gRPC calls this for each status."""
        del call
        # A second cancellation would interrupt what the source does at the first.
        if self._sender is not None and not self._sender.cancelling():
            self._sender.cancel()


class AsyncExchange(AsyncIterator[ResponseT]):
    """A call that sends a stream and reads another.

    A service may end such a call before it has read everything. gRPC then replaces the service's
    status by INTERNAL if a write fails, shortly before the status arrives or after it
    (https://github.com/grpc/grpc/issues/36066). This class reports the service's.
    """

    def __init__(
        self,
        method: "grpc.aio.StreamStreamMultiCallable[RequestT, ResponseT]",
        requests: AsyncIterator[RequestT],
        timeout: float | None,
    ) -> None:
        """Starts the call. It closes a generator of requests when it ends."""
        sent = _Requests(requests)
        self._call = method(aiter(sent), timeout=timeout)
        # `read` of the call would leave what came before a failed write, and the status with it.
        self._responses = aiter(self._call)
        self._status = _ServiceStatus()
        self._failure: BaseException | None = None
        self._call.add_done_callback(self._status.add)
        self._call.add_done_callback(sent.end)

    async def __anext__(self) -> ResponseT:
        """Returns the next response.

        Raises:
            StopAsyncIteration: The stream has ended.
            grpc.RpcError: The call failed, now or at an earlier read.
        """
        # gRPC's iterator just ends when it is read after a failure.
        if self._failure is not None:
            raise self._failure
        try:
            return await self._next()
        except (grpc.RpcError, asyncio.CancelledError) as error:
            self._failure = copy.copy(error)  # the raised one holds the frames of the reader
            raise

    async def _next(self) -> ResponseT:
        try:
            return await anext(self._responses)
        except grpc.aio.AioRpcError as error:
            if not _is_failed_write(error):
                raise
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._status.arrived.wait(), _PATIENCE)
            given = self._status.error
            if given is None:
                raise
            if given.code() is grpc.StatusCode.OK:
                raise StopAsyncIteration from None
            raise given from error

    def cancel(self) -> None:
        """Cancels the call if it has not ended."""
        self._call.cancel()


def _is_failed_write(error: grpc.aio.AioRpcError) -> bool:
    """Whether gRPC, rather than the service, reports an operation that it could not do."""
    return error.code() is grpc.StatusCode.INTERNAL and error.details() == _REFUSED


def _value(known: Coroutine[Any, Any, _ValueT]) -> _ValueT:
    """The result of a coroutine that has nothing to wait for.

    A task would read it too late: the next status may have replaced it.
    """
    try:
        known.send(None)
    except StopIteration as end:
        return cast("_ValueT", end.value)
    known.close()
    raise RuntimeError("a part of the status of a call that has ended is missing")
