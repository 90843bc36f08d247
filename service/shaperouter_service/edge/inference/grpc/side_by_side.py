"""Handling of a stream's requests side by side."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")

# Maximum requests of a stream in progress. Further ones are read when others have ended.
MAX_REQUESTS = 256


async def side_by_side(
    requests: AsyncIterator[T], respond: Callable[[T], AsyncGenerator[U, None]]
) -> AsyncGenerator[U, None]:
    """Handles each request in a task of its own, and yields the responses as they come.

    No request gets more than one response ahead of the reader. All requests are cancelled when the
    reader leaves, or when one fails.

    Args:
        requests: The requests.
        respond: Yields the responses of a request.

    Raises:
        Exception: The first failure of reading or handling requests.
    """
    # A response, a failure, or None at the end.
    arrived: asyncio.Queue[U | Exception | None] = asyncio.Queue(1)
    room = asyncio.Semaphore(MAX_REQUESTS)

    async def handle(request: T) -> None:
        try:
            async with aclosing(respond(request)) as responses:
                async for response in responses:
                    await arrived.put(response)
        finally:
            room.release()

    async def read() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                async for request in requests:
                    await room.acquire()
                    group.create_task(handle(request))
        except ExceptionGroup as failures:
            await arrived.put(failures.exceptions[0])
        else:
            await arrived.put(None)

    reading = asyncio.create_task(read())
    try:
        while (each := await arrived.get()) is not None:
            if isinstance(each, Exception):
                raise each
            yield each
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
