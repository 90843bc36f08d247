"""Admission of work until a process drains."""

import asyncio
import contextlib
from collections.abc import Iterator

from shaperouter_service.errors import StoppingError


class Admission:
    """Counts the calls that are a server's work, and refuses new ones once it is closed.

    Only the event loop may use it.
    """

    def __init__(self) -> None:
        """Starts open."""
        self._running = 0
        self._closed = False
        self._idle = asyncio.Event()
        self._idle.set()

    def close(self) -> None:
        """Refuses all further calls."""
        self._closed = True

    async def emptied(self) -> None:
        """Waits until all admitted calls have ended."""
        await self._idle.wait()

    @contextlib.contextmanager
    def admitted(self) -> Iterator[None]:
        """Counts a call inside the context.

        Raises:
            StoppingError: The admission is closed.
        """
        if self._closed:
            raise StoppingError
        self._running += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._running -= 1
            if not self._running:
                self._idle.set()
