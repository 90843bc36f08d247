"""What C libraries print, which would stand between the lines of the log.

libmpg123 prints a line for each frame that it cannot read, and libsndfile gives no way to turn that
off. A caller could fill the log with it.
"""

import contextlib
import ctypes
import os
from collections.abc import Iterator


def _find() -> ctypes.c_void_p | None:
    """The variable of the C library that points to its standard error; None but in glibc."""
    with contextlib.suppress(ValueError):
        return ctypes.c_void_p.in_dll(ctypes.CDLL(None), "stderr")
    return None


def _open_nowhere() -> int | None:
    library = ctypes.CDLL(None)
    library.fopen.restype = ctypes.c_void_p
    nowhere: int | None = library.fopen(os.devnull.encode(), b"w")
    return nowhere


_STDERR = _find()
_NOWHERE = _open_nowhere() if _STDERR else None


@contextlib.contextmanager
def unprinted() -> Iterator[None]:
    """Drops what C code prints to the standard error inside of the context, in any thread.

    The file descriptor stays what it is: Python, child processes and messages of crashes write to
    that. Contexts of several threads must not overlap.
    """
    if _STDERR is None or _NOWHERE is None:
        yield
        return
    before, _STDERR.value = _STDERR.value, _NOWHERE
    try:
        yield
    finally:
        _STDERR.value = before
