"""Graphs as they change, for code that blocks."""

from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import grpc

from shaperouter import _convert
from shaperouter._graph import Graph
from shaperouter._status import error_of

if TYPE_CHECKING:
    # The type of a call exists in gRPC's stubs only.
    from grpc import _CallIterator


class GraphStream(Iterator[list[Graph]]):
    """Lists of graphs, each as they were then; made by ``Client.watch_graphs`` and ``warm_graphs``.

    Leaving a ``with`` block early, or dropping the stream, cancels the call; graphs that are being
    made ready go on. One thread iterates; any thread may call `cancel`.
    """

    def __init__(self, call: "_CallIterator[Any]", *, address: str, deadline: float | None) -> None:
        """Wraps a call that has been started, and whose responses have graphs."""
        self._call = call
        self._address = address
        self._deadline = deadline

    def cancel(self) -> None:
        """Cancels the call; a reader gets `CallCancelledError`. Nothing happens after the end."""
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
        """Cancels the call if it is still under way."""
        self.cancel()
