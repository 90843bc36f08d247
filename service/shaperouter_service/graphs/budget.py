"""What a worker may compile: a mode, and limits, since a compiled graph is never freed."""

from collections.abc import Collection
from dataclasses import dataclass, field

import psutil

from shaperouter_service.routing.signatures import Signature
from shaperouter_service.routing.snapshots import CompileMode


@dataclass(frozen=True, kw_only=True)
class CompileBudget:
    """Limits of a worker's graphs.

    Attributes:
        mode: When something is compiled.
        max_graphs: Most graphs, those on the way included.
        max_memory_bytes: Memory of the process above which none is made but the first ones; 0 is
            no limit.
        first: The graphs without which some requests have none at all; they always have a place.
    """

    mode: CompileMode
    max_graphs: int
    max_memory_bytes: int = 0
    first: Collection[Signature] = field(default=(), repr=False)

    def room(self, made: Collection[Signature]) -> int:
        """How many graphs may still be made that are not the first ones.

        Args:
            made: The graphs that are ready or on the way.
        """
        if self.max_memory_bytes and memory_bytes() >= self.max_memory_bytes:
            return 0
        reserved = sum(1 for signature in self.first if signature not in made)
        return max(0, self.max_graphs - len(made) - reserved)


def memory_bytes() -> int:
    """Memory of this process that is resident, in bytes."""
    resident: int = psutil.Process().memory_info().rss
    return resident
