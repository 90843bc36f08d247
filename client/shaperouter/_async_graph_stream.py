"""A stream of graph lists, for asyncio."""

from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Self

import grpc
import grpc.aio

from shaperouter import _convert
from shaperouter._async_stream import async_errors
from shaperouter._graph import Graph


class AsyncGraphStream(AsyncIterator[list[Graph]]):
    """Successive lists of graphs; the asyncio form of `GraphStream`.

    Leaving an ``async with`` block early, cancelling the reading task, or dropping the stream
    cancels the call. It does not stop the compilation of graphs. Only one task may iterate.
    """

    def __init__(
        self,
        call: "grpc.aio.UnaryStreamCall[Any, Any]",
        *,
        address: str,
        deadline: float | None,
    ) -> None:
        """Wraps a call that has been started and whose responses contain graphs."""
        self._call = call
        self._address = address
        self._deadline = deadline

    def cancel(self) -> None:
        """Cancels the call: its reader gets `CallCancelledError`. No effect after the end."""
        self._call.cancel()

    async def __anext__(self) -> list[Graph]:
        """Waits for the next list.

        Raises:
            ShaperouterError: The call failed.
        """
        with async_errors(address=self._address, deadline=self._deadline):
            response: Any = await self._call.read()
        if response is grpc.aio.EOF:
            raise StopAsyncIteration
        return [_convert.graph(graph) for graph in response.graphs]

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
