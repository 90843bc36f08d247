"""A stream of graph lists, for blocking code."""

from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import grpc

from shaperouter import _convert
from shaperouter._graph import Graph
from shaperouter._status import error_of

if TYPE_CHECKING:
    # gRPC's type for a call exists only in its stubs.
    from grpc import _CallIterator


class GraphStream(Iterator[list[Graph]]):
    """Successive lists of graphs; created by ``Client.watch_graphs`` and ``warm_graphs``.

    Leaving a ``with`` block early, or dropping the stream, cancels the call. It does not stop the
    compilation of graphs. Only one thread may iterate; any thread may call `cancel`.
    """

    def __init__(self, call: "_CallIterator[Any]", *, address: str, deadline: float | None) -> None:
        """Wraps a call that has been started and whose responses contain graphs."""
        self._call = call
        self._address = address
        self._deadline = deadline

    def cancel(self) -> None:
        """Cancels the call: its reader gets `CallCancelledError`. No effect after the end."""
        self._call.cancel()

    def __next__(self) -> list[Graph]:
        """Waits for the next list.

        Raises:
            ShaperouterError: The call failed.
        """
        try:
            response = next(self._call)
        except grpc.RpcError as error:
            raise error_of(error, address=self._address, deadline=self._deadline) from error
        return [_convert.graph(graph) for graph in response.graphs]

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
