"""A stream of generated tokens, for blocking code."""

from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Self

import grpc

from shaperouter._generation import Delta, Generation
from shaperouter._signature import Signature
from shaperouter._status import error_of
from shaperouter._transcript import Transcript

if TYPE_CHECKING:
    # gRPC's type for a call exists only in its stubs.
    from grpc import _CallIterator

    from shaperouter.v1 import generation_pb2


class GenerationStream(Iterator[Delta]):
    """The deltas of one generation, in order; created by ``Client.stream``.

    After the last delta, `result` is the complete generation. Leaving a ``with`` block early, or
    dropping the stream, cancels the call and frees its slot on the service.

    Only one thread may iterate; any thread may call `cancel`.
    """

    def __init__(
        self,
        call: "_CallIterator[generation_pb2.GenerateStreamResponse]",
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

    def __next__(self) -> Delta:
        """Waits for the next delta.

        Raises:
            ShaperouterError: The call failed with an error of ``Client.generate``.
        """
        while True:
            try:
                event = next(self._call)
            except StopIteration:
                self._transcript.end()
                raise
            except grpc.RpcError as error:
                if self._transcript.complete:  # the completion came before the loss
                    raise StopIteration from None
                raise error_of(error, address=self._address, deadline=self._deadline) from error
            delta = self._transcript.add(event)
            if delta is not None:
                return delta

    def __enter__(self) -> Self:
        """Returns the stream itself."""
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Cancels the call if it has not ended."""
        self.cancel()
