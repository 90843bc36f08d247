"""The directory of the sockets of local workers, which is removed even if its service is killed."""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import structlog

# What is so named has a lock while its service lives. Directories of versions without locks were
# named otherwise.
PREFIX = "shaperouter-serve-"

log = structlog.get_logger(__name__)


@contextlib.contextmanager
def socket_directory() -> Iterator[Path]:
    """Makes a directory for sockets inside of the context.

    A service that is killed cannot remove its own: the next one of the same user does. Which are
    left behind is told by locks, since the system releases them when their process ends.
    """
    _remove_left_behind(Path(tempfile.gettempdir()))
    directory, held = _locked_directory()
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        os.close(held)


def _locked_directory() -> tuple[Path, int]:
    while True:
        directory = Path(tempfile.mkdtemp(prefix=PREFIX))
        # Another process that starts may have taken it for left behind.
        with contextlib.suppress(FileNotFoundError):
            held = _opened(directory)
            fcntl.flock(held, fcntl.LOCK_EX)
            if directory.exists():
                return directory, held
            os.close(held)


def _remove_left_behind(place: Path) -> None:
    for directory in place.glob(f"{PREFIX}*"):
        # Whatever is no directory of ours stays.
        with contextlib.suppress(OSError):
            if directory.lstat().st_uid != os.geteuid():
                continue
            held = _opened(directory)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(directory)
                log.info("sockets of a killed service removed", directory=str(directory))
            finally:
                os.close(held)


def _opened(directory: Path) -> int:
    return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
