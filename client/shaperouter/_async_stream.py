"""A stream of generated tokens, for asyncio."""

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
    """The deltas of one generation, in order; created by ``AsyncClient.stream``.

    After the last delta, `result` is the complete generation. Leaving an ``async with`` block
    early, cancelling the reading task, or dropping the stream cancels the call and frees its slot
    on the service. Only one task may iterate.
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
        """The complete generation.

        Raises:
            RuntimeError: The stream has not been read to the end.
        """
        return self._transcript.result

    def cancel(self) -> None:
        """Cancels the call: its reader gets `CallCancelledError`. No effect after the end."""
        self._call.cancel()

    async def __anext__(self) -> Delta:
        """Waits for the next delta.

        Raises:
            ShaperouterError: The call failed with an error of ``Client.generate``.
        """
        while True:
            try:
                with async_errors(address=self._address, deadline=self._deadline):
                    event = await self._call.read()
            except ShaperouterError:
                if not self._transcript.complete:
                    raise
                event = grpc.aio.EOF  # the completion came before the loss
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
        """Cancels the call if it has not ended."""
        self.cancel()


@contextmanager
def async_errors(*, address: str, deadline: float | None) -> Iterator[None]:
    """Converts gRPC's errors inside the block into the client's.

    gRPC raises CancelledError in the task that awaits a cancelled call. That is an error of the
    call, unless the awaiting task was itself cancelled.
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
