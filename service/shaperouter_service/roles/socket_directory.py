"""The directory for sockets of local workers, which is removed even after SIGKILL."""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import structlog

# Directories with this prefix are locked while their service lives. Versions without locks used
# another prefix.
PREFIX = "shaperouter-serve-"

log = structlog.get_logger(__name__)


@contextlib.contextmanager
def socket_directory() -> Iterator[Path]:
    """Creates a directory for sockets, which exists inside the context.

    A killed service cannot remove its directory, so the next service of the same user does. Locks
    show which directories are abandoned: the system releases them when their process ends.
    """
    _remove_abandoned(Path(tempfile.gettempdir()))
    directory, held = _locked_directory()
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        os.close(held)


def _locked_directory() -> tuple[Path, int]:
    while True:
        directory = Path(tempfile.mkdtemp(prefix=PREFIX))
        # Another starting service may have removed it as abandoned.
        with contextlib.suppress(FileNotFoundError):
            held = _open(directory)
            fcntl.flock(held, fcntl.LOCK_EX)
            if directory.exists():
                return directory, held
            os.close(held)


def _remove_abandoned(parent: Path) -> None:
    for directory in parent.glob(f"{PREFIX}*"):
        # Skips files, and directories of other users.
        with contextlib.suppress(OSError):
            if directory.lstat().st_uid != os.geteuid():
                continue
            held = _open(directory)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(directory)
                log.info("sockets of a killed service removed", directory=str(directory))
            finally:
                os.close(held)


def _open(directory: Path) -> int:
    return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
