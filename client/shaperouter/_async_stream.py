"""A generation as it is made, for asyncio."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self, cast

import grpc
import grpc.aio

from shaperouter._errors import ShaperouterError
from shaperouter._generation import Delta, Generation
from shaperouter._signature import Signature
from shaperouter._status import cancelled, error_of
from shaperouter._transcript import Transcript

if TYPE_CHECKING:
    from shaperouter.v1 import generation_pb2


class AsyncGenerationStream(AsyncIterator[Delta]):
    """The deltas of one generation, in their order; made by ``AsyncClient.stream``.

    Read it to its end and `result` is the whole generation. Leaving an ``async with`` block early,
    cancelling the task that reads, or dropping the stream cancels the call and frees its slot on
    the service. One task iterates.
    """

    def __init__(
        self,
        call: "grpc.aio.UnaryStreamCall[generation_pb2.GenerateStreamRequest, "
        "generation_pb2.GenerateStreamResponse]",
        *,
        address: str,
        deadline: float | None,
        on_stall: Callable[[Signature], None] | None,
    ) -> None:
        """Wraps a call that has been started."""
        self._call = call
        self._address = address
        self._deadline = deadline
        self._transcript = Transcript(on_stall)

    @property
    def result(self) -> Generation:
        """The whole generation.

        Raises:
            RuntimeError: The stream has not been read to its end.
        """
        return self._transcript.result

    def cancel(self) -> None:
        """Cancels the call; a reader gets `CallCancelledError`. Nothing happens after the end."""
        self._call.cancel()

    async def __anext__(self) -> Delta:
        """Waits for the next delta.

        Raises:
            ShaperouterError: The call failed, in one of the ways of ``Client.generate``.
        """
        while True:
            try:
                with async_errors(address=self._address, deadline=self._deadline):
                    event = await self._call.read()
            except ShaperouterError:
                if not self._transcript.complete:
                    raise
                event = grpc.aio.EOF  # nothing was lost with the connection
            if event is grpc.aio.EOF:
                self._transcript.end()
                raise StopAsyncIteration
            delta = self._transcript.add(cast("generation_pb2.GenerateStreamResponse", event))
            if delta is not None:
                return delta

    async def __aenter__(self) -> Self:
        """Returns the stream itself."""
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Cancels the call if it is still under way."""
        self.cancel()


@contextmanager
def async_errors(*, address: str, deadline: float | None) -> Iterator[None]:
    """Turns gRPC's errors inside the block into the client's.

    gRPC raises CancelledError in whoever awaits a call that is cancelled; unless the awaiting task
    was cancelled itself, that is an error of the call.
    """
    try:
        yield
    except grpc.RpcError as error:
        raise error_of(error, address=address, deadline=deadline) from error
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise cancelled() from None
