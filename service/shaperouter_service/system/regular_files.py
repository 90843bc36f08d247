"""Reading of regular files from directories that others may write to, without blocking."""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


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
