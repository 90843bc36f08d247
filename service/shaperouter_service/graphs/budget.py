"""Limits on what a worker compiles, since TensorFlow never frees a compiled graph."""

import contextlib
import functools
from collections.abc import Collection
from dataclasses import dataclass, field

import psutil

from shaperouter_service.routing.signatures import Signature
from shaperouter_service.routing.snapshots import CompileMode


@dataclass(frozen=True, kw_only=True)
class CompileBudget:
    """Limits on the graphs of a worker.

    Attributes:
        mode: The compile mode.
        max_graphs: Maximum number of graphs, including those that are queued or compiling.
        max_memory_bytes: Resident memory of the process above which only first graphs are
            compiled; 0 means no limit.
        first: The first graphs, which together cover every request; the budget always has room for
            them.
    """

    mode: CompileMode
    max_graphs: int
    max_memory_bytes: int = 0
    first: Collection[Signature] = field(default=(), repr=False)

    def room(self, counted: Collection[Signature]) -> int:
        """Returns how many more graphs may be compiled besides the first graphs.

        Args:
            counted: The graphs that are ready, queued or compiling.
        """
        if self.max_memory_bytes and memory_bytes() >= self.max_memory_bytes:
            return 0
        reserved = sum(1 for signature in self.first if signature not in counted)
        return max(0, self.max_graphs - len(counted) - reserved)


@functools.cache
def _process() -> psutil.Process:
    return psutil.Process()


# What `memory_bytes` returned last.
_measured = 0


def memory_bytes() -> int:
    """Returns the resident memory of this process, in bytes.

    Without a free file descriptor it cannot be measured, and the last measurement is returned: the
    lack must not keep a worker from reporting its state.
    """
    global _measured  # noqa: PLW0603 (it is the process's, as its memory is)
    with contextlib.suppress(OSError):
        _measured = _process().memory_info().rss
    return _measured
