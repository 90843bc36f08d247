"""Counts the memory maps of this process, because Linux limits them.

A compiled graph takes about 200 for its code (embedded demo model, 52 graphs). TensorFlow never
frees them, even when the model is unloaded. At the limit, XLA cannot map more code and aborts the
process.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

# Share of the limit at which a process compiles no further graphs. The rest is for graphs that are
# being compiled, for the first graphs of a model that is being loaded, and for threads and buffers.
SPENT_SHARE = 0.8

_MAPS, _LIMIT = Path("/proc/self/maps"), Path("/proc/sys/vm/max_map_count")


@dataclass(frozen=True)
class MemoryMaps:
    """Memory maps of a process.

    Attributes:
        used: Number that it has.
        limit: Number that the system allows it (`vm.max_map_count`); 0 if there is no limit.
    """

    used: int = 0
    limit: int = 0

    @property
    def spent(self) -> bool:
        """Whether there are too few left to compile graphs safely."""
        return self.limit > 0 and self.used >= SPENT_SHARE * self.limit

    def __str__(self) -> str:
        """Both numbers."""
        return f"{self.used} of {self.limit} memory maps (vm.max_map_count)"


def memory_maps() -> MemoryMaps:
    """Counts the memory maps of this process, which takes 35 ms for 50,000.

    Raises:
        OSError: They cannot be counted: the system is not Linux, or no file descriptor is free.
    """
    limit = int(_LIMIT.read_text())
    with _MAPS.open("rb") as maps:
        return MemoryMaps(sum(1 for _ in maps), limit)
