"""Reading and writing files that other processes use: without blocking, and never in part."""

import contextlib
import errno
import os
import stat
import threading
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO, Generic, TypeVar

import structlog

from shaperouter_service.errors import ExhaustedError, StartupError

log = structlog.get_logger(__name__)

T = TypeVar("T")

# Pattern of the names that files have while they are being written.
UNFINISHED = "*.unfinished"


def open_regular(path: Path) -> BinaryIO:
    """Opens a regular file for reading. Opening a pipe without a writer would block forever.

    Raises:
        OSError: It cannot be opened, or is a directory, a pipe, a socket or a device.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "Not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def read_regular(path: Path) -> bytes:
    """Reads a whole file that `open_regular` opens.

    Raises:
        OSError: It cannot be read, or is not a regular file.
    """
    with open_regular(path) as file:
        return file.read()


def write_atomically(path: Path, content: bytes) -> None:
    """Writes bytes to a file, which has either all of them or its previous content.

    Raises:
        OSError: The file cannot be written; the previous one stays.
    """
    unfinished = path.with_name(f"{path.name}.{uuid.uuid4().hex}{UNFINISHED.removeprefix('*')}")
    try:
        unfinished.write_bytes(content)
        unfinished.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise


class ReloadedFiles(Generic[T]):
    """The parsed content of files that may change, such as certificates. Thread-safe.

    While the files are invalid, the previous content stays in use.

    Each access checks for changes, which takes microseconds. So changes need no notification, and a
    revocation holds from the next call on.
    """

    def __init__(self, paths: Sequence[Path], read: Callable[[], T]) -> None:
        """Reads the files.

        Args:
            paths: The files; a symbolic link means its target.
            read: Reads and parses them.

        Raises:
            StartupError: They are invalid, as `read` finds.
        """
        self._paths = paths
        self._read = read
        self._lock = threading.Lock()
        # Taken before the files are read, so that the next access notices a change in between.
        self._stamps = self._stamps_now()
        self._value = read()

    def get(self) -> T:
        """The content: the same object until the files change."""
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
            # This also happens during a rotation, when a certificate is new and its key is not.
            log.warning("changed files not loaded", files=files, reason=str(error))
            if ExhaustedError.of(error.__cause__):
                # They may be valid, and are read once the process has what that needs.
                self._stamps = []
        except BaseException:
            # Nor must a defect leave the old content in use for good.
            self._stamps = []
            raise
        else:
            log.info("changed files loaded", files=files)

    def _stamps_now(self) -> list[tuple[int, int, int] | None]:
        return [_stamp(path) for path in self._paths]


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """A value that changes with a file's content; None if the file is missing."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
