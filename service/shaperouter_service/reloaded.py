"""Files that are read again when they have changed: certificates and tokens that are rotated."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

import structlog

from shaperouter_service.errors import StartupError

log = structlog.get_logger(__name__)

T = TypeVar("T")


class Reloaded(Generic[T]):
    """What some files say. While they cannot be used, it is what they said before. Thread-safe.

    Whether they have changed is looked at whenever it is asked for, which takes microseconds:
    nobody has to be told of a change, and what is revoked is so from the next call on.
    """

    def __init__(self, paths: Sequence[Path], read: Callable[[], T]) -> None:
        """Reads the files.

        Args:
            paths: The files; a symbolic link stands for what it leads to.
            read: Reads them.

        Raises:
            StartupError: They cannot be used, as `read` finds.
        """
        self._paths = paths
        self._read = read
        self._lock = threading.Lock()
        # Before they are read: a change in between is found the next time.
        self._stamps = self._stamps_now()
        self._value = read()

    def get(self) -> T:
        """What the files say: the same object for as long as they don't change."""
        with self._lock:
            stamps = self._stamps_now()
            if stamps != self._stamps:
                self._stamps = stamps
                self._reload()
            return self._value

    def _reload(self) -> None:
        files = [str(path) for path in self._paths]
        try:
            self._value = self._read()
        except StartupError as error:
            # In the middle of a rotation, too, when a certificate is new and its key is not yet.
            log.warning("changed files not taken", files=files, reason=str(error))
        else:
            log.info("changed files taken", files=files)

    def _stamps_now(self) -> list[tuple[int, int, int] | None]:
        return [_stamp(path) for path in self._paths]


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """What tells one content of a file from the next; None while there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
