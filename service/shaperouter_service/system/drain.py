"""The drain of a server, which refuses new work and lets admitted work finish."""

import asyncio
import contextlib
from collections.abc import Iterator

from shaperouter_service.errors import StoppingError


class Drain:
    """Counts the calls that are a server's work, and refuses new ones once the drain has begun.

    Only the event loop may use it.
    """

    def __init__(self) -> None:
        """Admits calls until `begin`."""
        self._begun = False
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def begun(self) -> bool:
        """Whether further calls are refused."""
        return self._begun

    def begin(self) -> None:
        """Refuses all further calls."""
        self._begun = True

    async def done(self) -> None:
        """Waits until all admitted calls have ended."""
        await self._idle.wait()

    @contextlib.contextmanager
    def admitted(self) -> Iterator[None]:
        """Counts a call inside the context.

        Raises:
            StoppingError: The drain has begun.
        """
        if self._begun:
            raise StoppingError
        self._running += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._running -= 1
            if not self._running:
                self._idle.set()
