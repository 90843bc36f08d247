"""Noticing that the device does not come back from a call."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from shaperouter_service.routing.signatures import Signature

log = structlog.get_logger(__name__)

# Looks at the call under way within the time that it may take.
CHECKS = 10


class _Run(Protocol):
    """What is told of a run; see `run.Run`."""

    request_id: str


@dataclass(frozen=True, eq=False)
class Call:
    """A call of a graph for some runs, begun at a time on the monotonic clock."""

    signature: Signature
    runs: Sequence[_Run]
    started: float


class Watchdog(threading.Thread):
    """Watches one call at a time, the device thread's.

    Time is told in checks, so that a process that was paused does not take that for a hang.
    """

    def __init__(self, limit: float, *, on_hang: Callable[[], None]) -> None:
        """Prepares the thread; `start` starts it.

        Args:
            limit: Seconds that a call may take.
            on_hang: Called from here, once, when one takes longer. Nothing can be done about the
                call: it is the process that must go.
        """
        super().__init__(name="watchdog", daemon=True)
        self._limit = limit
        self._on_hang = on_hang
        self._call: Call | None = None
        # The call of the last check, and how many checks in a row have seen it.
        self._watched: Call | None = None
        self._checks = 0

    @contextlib.contextmanager
    def watching(self, signature: Signature, runs: Sequence[_Run]) -> Iterator[None]:
        """Watches what is done inside of the context, on the device thread."""
        self._call = Call(signature, runs, time.monotonic())
        try:
            yield
        finally:
            self._call = None

    def run(self) -> None:
        """Watches until a call hangs."""
        while (hung := self.check()) is None:
            time.sleep(self._limit / CHECKS)
        log.critical(
            "device call hung",
            graph=str(hung.signature),
            request_ids=sorted({run.request_id for run in hung.runs}),
            seconds=round(time.monotonic() - hung.started, 1),
        )
        self._on_hang()

    def check(self) -> Call | None:
        """Looks once; returns the call that has been under way for too many checks."""
        call = self._call
        self._checks = self._checks + 1 if call is self._watched else 0
        self._watched = call
        return call if self._checks >= CHECKS else None
