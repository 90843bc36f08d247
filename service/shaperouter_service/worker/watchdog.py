"""Detection of device calls that hang."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from shaperouter_service.routing.signatures import Signature

log = structlog.get_logger(__name__)

# Number of checks within the time that a call may take.
CHECKS = 10


class _Run(Protocol):
    """The part of a run that is logged; see `run.Run`."""

    request_id: str


@dataclass(frozen=True, eq=False)
class Call:
    """A call of a graph for some runs, begun at a time on the monotonic clock."""

    signature: Signature
    runs: Sequence[_Run]
    started: float


class Watchdog(threading.Thread):
    """Watches the calls of the device thread, one at a time.

    Time is counted in checks, so that a pause of the process does not look like a hang.
    """

    def __init__(self, limit: float, *, on_hang: Callable[[], None]) -> None:
        """Prepares the thread; `start` starts it.

        Args:
            limit: Maximum seconds of a call.
            on_hang: Called once from this thread when a call takes longer. The call cannot be
                interrupted, so the process must be replaced.
        """
        super().__init__(name="watchdog", daemon=True)
        self._limit = limit
        self._on_hang = on_hang
        self._call: Call | None = None
        # The call of the last check, and how many checks in a row saw it.
        self._watched: Call | None = None
        self._checks = 0

    @contextlib.contextmanager
    def watching(self, signature: Signature, runs: Sequence[_Run]) -> Iterator[None]:
        """Watches a call made inside of the context, on the device thread."""
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
        """Checks once; returns the current call if it has hung."""
        call = self._call
        self._checks = self._checks + 1 if call is self._watched else 0
        self._watched = call
        return call if self._checks >= CHECKS else None
