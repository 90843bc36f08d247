"""Merging of several streams into one."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import TypeVar

T = TypeVar("T")


async def merged(
    streams: Sequence[AsyncGenerator[T, None]],
) -> AsyncGenerator[tuple[int, T], None]:
    """Reads streams side by side; closes all when one fails or the reader leaves.

    No stream gets more than one value ahead of the reader.

    Yields:
        The values as they arrive, each with the index of its stream.

    Raises:
        BaseException: The exception of the first stream that fails.
    """
    if len(streams) == 1:  # the usual case, without a task for each value
        async with contextlib.aclosing(streams[0]) as stream:
            async for value in stream:
                yield 0, value
        return

    async def read(index: int) -> T:
        return await anext(streams[index])

    reading = {asyncio.create_task(read(index)): index for index in range(len(streams))}
    try:
        while reading:
            done, _ = await asyncio.wait(reading, return_when=asyncio.FIRST_COMPLETED)
            for task in sorted(done, key=lambda task: reading[task]):
                index = reading.pop(task)
                try:
                    value = task.result()
                except StopAsyncIteration:
                    continue
                reading[asyncio.create_task(read(index))] = index
                yield index, value
    finally:
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)
        for stream in streams:
            await stream.aclose()
