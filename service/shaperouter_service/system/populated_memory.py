"""Memory whose pages are provided before it is used."""

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
    virtual machine often has to get it from its host first. The memory is freed with the last of
    the arrays that were taken from it.
    """

    def __init__(self, size: int) -> None:
        """Maps memory, none of which is populated yet.

        Args:
            size: Its size in bytes, at least 1.

        Raises:
            OSError: The system refuses to map that much.
        """
        self._map = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._map.madvise(mmap.MADV_HUGEPAGE)
        self._bytes = np.frombuffer(self._map, np.uint8)
        self._size, self._used, self._populated = size, 0, 0

    @property
    def populated(self) -> int:
        """Bytes that have been populated, from the beginning on."""
        return min(self._populated, self._size)

    def populate(self) -> None:
        """Populates the memory, unless the system is too old. It may be in use meanwhile."""
        # Python's own call of madvise would keep all other threads of Python waiting.
        madvise = ctypes.CDLL(None).madvise
        address = self._bytes.ctypes.data
        while (left := self._size - self._populated) > 0:
            start = ctypes.c_void_p(address + self._populated)
            if madvise(start, ctypes.c_size_t(min(_STEP, left)), _POPULATE_WRITE) != 0:
                return
            self._populated += min(_STEP, left)

    def take(self, size: int) -> np.ndarray | None:
        """Returns so many bytes of it as an array; None if fewer are left."""
        start = self._used
        if start + size > self._size:
            return None
        self._used = start + size
        return self._bytes[start : start + size]

    def free_rest(self) -> None:
        """Gives back what has not been taken; nothing can be taken after that."""
        rest = -(-self._used // mmap.PAGESIZE) * mmap.PAGESIZE
        if rest < self._size:
            self._size = rest
            self._map.madvise(mmap.MADV_DONTNEED, rest)
