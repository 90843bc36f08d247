"""An event loop whose clock jumps, so that tests of timeouts wait for nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

# Turns of the loop in which everything happens that follows from an event.
TURNS = 40


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop that sleeps only in virtual time, which `pass_time` lets pass."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0

    def time(self) -> float:
        return self._now

    def call(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Runs a coroutine to its end, and then everything that it has caused."""
        result = self.run_until_complete(coroutine)
        self.settle()
        return result

    def settle(self) -> None:
        """Lets everything happen that needs no time."""

        async def turns() -> None:
            for _ in range(TURNS):
                await asyncio.sleep(0)

        self.run_until_complete(turns())

    def pass_time(self, seconds: float) -> None:
        """Lets time pass, and everything happen that is due meanwhile."""
        until = self._now + seconds
        while (due := self._next_due()) is not None and due <= until:
            self._now = max(self._now, due)
            self.settle()
        self._now = until
        self.settle()

    def stop_all(self) -> None:
        """Cancels all tasks, and closes the loop."""
        for task in asyncio.all_tasks(self):
            task.cancel()
        self.settle()
        self.close()

    def _next_due(self) -> float | None:
        waiting = [timer.when() for timer in self._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]
        return min(waiting, default=None)
