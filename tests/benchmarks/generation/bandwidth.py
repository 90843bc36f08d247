"""Memory bandwidth of the machine, which bounds every step: a step reads all weights once."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from common.checkpoint import PARAMETERS

Share = NDArray[np.float32]

REPEATS = 5
# Ways to read each element once and do little else: which is the faster depends on the processor.
READS: Sequence[Callable[[Share], object]] = (
    lambda share: np.dot(share, share),
    lambda share: share.view(np.int32).max(),
)
BYTES = PARAMETERS * np.dtype(np.float32).itemsize


class MemoryReader:
    """An array of the weights' size, and threads that each read a share of it."""

    def __init__(self, threads: int) -> None:
        self._shares = np.array_split(np.ones(PARAMETERS, np.float32), threads)
        self._threads = ThreadPoolExecutor(threads)

    def bytes_per_second(self) -> float:
        """The fastest of a few passes, because disturbances must not raise a lower bound."""
        return max(self._pass(read) for _ in range(REPEATS) for read in READS)

    def _pass(self, read: Callable[[Share], object]) -> float:
        started = time.perf_counter()
        list(self._threads.map(read, self._shares))
        return BYTES / (time.perf_counter() - started)
