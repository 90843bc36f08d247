"""A time limit for the cache's operations on its disk.

A network disk that hangs blocks its users without an error, and signals cannot interrupt them.
Compile threads wait for the cache, and requests wait for compile threads.
"""

import errno
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

import structlog

T = TypeVar("T")

log = structlog.get_logger(__name__)

# Time limit of one operation in seconds: tens of megabytes from a slow disk.
DISK_TIMEOUT = 30.0


# What an operation may fail with, without a defect.
FAILURES = (OSError, MemoryError)


class DiskTimeoutError(OSError):
    """The disk did not answer in time and is no longer used."""

    def __init__(self, timeout: float) -> None:
        """Takes the limit in seconds."""
        super().__init__(errno.ETIMEDOUT, f"The disk did not answer within {timeout:g} s")


class Disk:
    """Runs operations on files in threads, which are abandoned at the time limit.

    After one operation has hung, all others fail at once until the process ends. Thread-safe.
    """

    def __init__(self, timeout: float = DISK_TIMEOUT) -> None:
        """Takes the time limit of one operation in seconds."""
        self._timeout = timeout
        self._hung = threading.Event()

    def run(self, operation: Callable[[], T]) -> T:
        """Runs an operation; returns its result or raises its exception.

        Raises:
            DiskTimeoutError: This operation or an earlier one exceeded the limit.
            OSError: The system cannot start a thread.
        """
        if self._hung.is_set():
            raise DiskTimeoutError(self._timeout)
        future: Future[T] = Future()

        def work() -> None:
            try:
                future.set_result(operation())
            except BaseException as error:  # raised in the waiting thread
                future.set_exception(error)

        try:
            threading.Thread(target=work, name="disk", daemon=True).start()
        except RuntimeError as error:
            raise OSError(errno.EAGAIN, str(error)) from error
        if wait([future], self._timeout).not_done:
            if not self._hung.is_set():
                self._hung.set()
                log.warning(
                    "the compile cache was turned off until this process restarts: its disk hung",
                    timeout_seconds=self._timeout,
                )
            raise DiskTimeoutError(self._timeout)
        return future.result()
