"""A Unix socket in front of another one, whose connections a test can hold or cut."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path


class Wire:
    """A gate that a worker's connections pass; data waits while it is not `open`."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()


@contextlib.asynccontextmanager
async def cuttable(outer: Path, inner: Path) -> AsyncIterator[Wire]:
    """Forwards a Unix socket to another, and aborts all connections at its end."""
    wire = Wire()
    writers: set[asyncio.StreamWriter] = set()
    forwarding: set[asyncio.Task[None] | None] = set()
    ended = False

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                await wire.open.wait()
                writer.write(data)
                await writer.drain()
        writer.close()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        forwarding.add(asyncio.current_task())
        writers.add(writer)
        try:
            inner_reader, inner_writer = await asyncio.open_unix_connection(inner)
        except OSError:
            # The worker does not listen any more: the caller loses its connection, as without us.
            writer.transport.abort()
            return
        writers.add(inner_writer)
        if ended:
            abort()
        await asyncio.gather(pump(reader, inner_writer), pump(inner_reader, writer))

    def abort() -> None:
        for writer in writers:
            writer.transport.abort()

    server = await asyncio.start_unix_server(forward, outer)
    try:
        yield wire
    finally:
        wire.open.set()
        server.close()
        outer.unlink()  # noqa: ASYNC240 (one call to a local file system, in a test)
        ended = True
        abort()
        await asyncio.gather(*filter(None, forwarding))
