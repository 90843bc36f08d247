"""Messages that wait to be sent over a stream; those that are ready travel together."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Generic, TypeVar

from google.protobuf.message import Message

T = TypeVar("T", bound=Message)

# Bytes after which a batch takes no further item. With the largest item, a window of a recording of
# about 2 MB, a batch stays below the limit of a message.
BATCH_BYTES = 1024 * 1024


class Outbox(Generic[T]):
    """Items to be sent, in order. Only the event loop may use it.

    While a batch is being sent, which takes longer if the other side is busy, the next one grows.
    """

    def __init__(self) -> None:
        """Starts empty."""
        self._items: list[T] = []
        self._closed = False
        self._wake: asyncio.Future[None] | None = None

    def put(self, item: T) -> None:
        """Adds an item to the next batch; drops it after `close`."""
        if not self._closed:
            self._items.append(item)
            self._notify()

    def close(self) -> None:
        """Ends the batches after the items that wait."""
        self._closed = True
        self._notify()

    async def batches(self) -> AsyncGenerator[list[T], None]:
        """Yields waiting items as batches until `close`; only one reader is allowed."""
        while True:
            while not self._items:
                if self._closed:
                    return
                self._wake = asyncio.get_running_loop().create_future()
                await self._wake
            yield self._take()

    def _take(self) -> list[T]:
        """The first items, as many as a message may hold."""
        items, size = self._items, 0
        for count, item in enumerate(items, start=1):
            size += item.ByteSize()
            if size >= BATCH_BYTES:
                self._items = items[count:]
                return items[:count]
        self._items = []
        return items

    def _notify(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)
