"""Discarding what C libraries print to standard error.

libmpg123 prints a line for each frame that it cannot read, and libsndfile has no setting to turn
that off. A caller could fill the log with such lines.
"""

import contextlib
import ctypes
import os
from collections.abc import Iterator


def _find_stderr() -> ctypes.c_void_p | None:
    """The C library's `stderr` variable; None if the library is not glibc."""
    with contextlib.suppress(ValueError):
        return ctypes.c_void_p.in_dll(ctypes.CDLL(None), "stderr")
    return None


def _open_devnull() -> int | None:
    library = ctypes.CDLL(None)
    library.fopen.restype = ctypes.c_void_p
    devnull: int | None = library.fopen(os.devnull.encode(), b"w")
    return devnull


_STDERR = _find_stderr()
_DEVNULL = _open_devnull() if _STDERR else None


@contextlib.contextmanager
def c_stderr_discarded() -> Iterator[None]:
    """Discards what C code of any thread prints to standard error in this context.

    The file descriptor does not change, because Python, child processes and crash messages write to
    it. Contexts of several threads must not overlap.
    """
    if _STDERR is None or _DEVNULL is None:
        yield
        return
    before, _STDERR.value = _STDERR.value, _DEVNULL
    try:
        yield
    finally:
        _STDERR.value = before
