"""Graphs as they change, for asyncio."""

from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Self

import grpc
import grpc.aio

from shaperouter import _convert
from shaperouter._async_stream import async_errors
from shaperouter._graph import Graph


class AsyncGraphStream(AsyncIterator[list[Graph]]):
    """Lists of graphs, each as they were then; the twin of `GraphStream`.

    Leaving an ``async with`` block early, cancelling the task that reads, or dropping the stream
    cancels the call; graphs that are being made ready go on. One task iterates.
    """

    def __init__(
        self,
        call: "grpc.aio.UnaryStreamCall[Any, Any]",
        *,
        address: str,
        deadline: float | None,
    ) -> None:
        """Wraps a call that has been started, and whose responses have graphs."""
        self._call = call
        self._address = address
        self._deadline = deadline

    def cancel(self) -> None:
        """Cancels the call; a reader gets `CallCancelledError`. Nothing happens after the end."""
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
        """Cancels the call if it is still under way."""
        self.cancel()
