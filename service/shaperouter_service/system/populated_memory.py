"""Memory whose pages are provided before it is used."""

import contextlib
import ctypes
import mmap

import numpy as np

# MADV_POPULATE_WRITE of Linux 5.14, which `mmap` does not name. It leaves the content as it is, so
# memory that is in use already may be populated, too.
_POPULATE_WRITE = 23
# Bytes that are populated at a time: four huge pages. Threads that map memory wait meanwhile, and
# after each step this thread may wait for the interpreter.
_STEP = 2**23


class PopulatedMemory:
    """Memory that one thread populates while others work, and that another thread then takes.

    The first use of each page of new memory is a fault, in which the system clears the page. A
    virtual machine often has to get it from its host first. The memory is freed with this object
    and all arrays that were taken from it.
    """

    def __init__(self, expected: int) -> None:
        """Maps the memory; `populate` populates it.

        Args:
            expected: Approximate number of bytes that will be taken. A quarter more is mapped, and
                populated only when it is used.

        Raises:
            OSError: The system refuses to map that much.
        """
        self._end = expected + expected // 4 + 2**20
        self._map = mmap.mmap(-1, self._end, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with contextlib.suppress(OSError):  # a system without huge pages
            self._map.madvise(mmap.MADV_HUGEPAGE)
        self._bytes = np.frombuffer(self._map, np.uint8)
        self._needed, self._used, self._populated = expected, 0, 0
        self._is_complete = False

    @property
    def populated(self) -> int:
        """Bytes that have been populated, from the beginning on."""
        return min(self._populated, self._needed)

    def populate(self) -> None:
        """Populates what will be needed, which may be in use already.

        Linux before 5.14 cannot; the memory is then populated as it is used.
        """
        # Python's own call of madvise would keep all other threads of Python waiting.
        madvise = ctypes.CDLL(None).madvise
        address = self._bytes.ctypes.data
        while (left := self._needed - self._populated) > 0:
            start, size = address + self._populated, min(_STEP, left)
            if madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), _POPULATE_WRITE) != 0:
                return
            self._populated += size
        if self._is_complete:
            # The last step may have begun before the rest was given back.
            self._free_from_used()

    def take(self, size: int) -> np.ndarray | None:
        """Returns so many bytes of it as an array; None if fewer are left."""
        start = self._used
        if start + size > self._end:
            return None
        self._used = start + size
        return self._bytes[start : start + size]

    def free_rest(self) -> None:
        """Gives back what has not been taken; nothing can be taken after that."""
        self._needed = self._end = self._used
        self._is_complete = True
        self._free_from_used()

    def _free_from_used(self) -> None:
        """Gives back all pages after the last one that was taken."""
        rest = -(-self._used // mmap.PAGESIZE) * mmap.PAGESIZE
        if rest < len(self._map):
            self._map.madvise(mmap.MADV_DONTNEED, rest)
