"""A time limit for what the cache does with its disk.

A network disk that hangs blocks whoever uses it, with no error and beyond the reach of signals.
Compile threads wait for the cache, and requests for them.
"""

import errno
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

import structlog

T = TypeVar("T")

log = structlog.get_logger(__name__)

# Seconds that one operation may take: reading or writing some tens of megabytes, from a slow disk.
DISK_TIMEOUT = 30.0


class DiskHangsError(OSError):
    """The disk has not answered in time, and is not used any more."""

    def __init__(self, timeout: float) -> None:
        """Takes the limit in seconds."""
        super().__init__(errno.ETIMEDOUT, f"The disk has not answered within {timeout:g} s")


class Disk:
    """Runs operations on files, each on a thread of its own that is abandoned at the time limit.

    One operation that hangs is the last: until the process ends, every other fails at once. Methods
    may be called from any thread.
    """

    def __init__(self, timeout: float = DISK_TIMEOUT) -> None:
        """Takes the time limit of one operation in seconds."""
        self._timeout = timeout
        self._hangs = threading.Event()

    def run(self, operation: Callable[[], T]) -> T:
        """Returns what an operation returns, and raises what it raises.

        Raises:
            DiskHangsError: It took longer than the limit, or an earlier one did.
        """
        if self._hangs.is_set():
            raise DiskHangsError(self._timeout)
        future: Future[T] = Future()

        def work() -> None:
            try:
                future.set_result(operation())
            except BaseException as error:  # raised to whoever waits
                future.set_exception(error)

        threading.Thread(target=work, name="disk", daemon=True).start()
        if wait([future], self._timeout).not_done:
            if not self._hangs.is_set():
                self._hangs.set()
                log.warning(
                    "the compile cache is not used until this process is restarted: its disk hangs",
                    timeout_seconds=self._timeout,
                )
            raise DiskHangsError(self._timeout)
        return future.result()
