"""Aligned arrays, whose memory TensorFlow and XLA use without copying it."""

import math
from typing import Any

import numpy as np

from shaperouter_service.system.populated_memory import PopulatedMemory

# Alignment of addresses in bytes, as in TensorFlow's own allocator.
ALIGNMENT = 64


def aligned(
    shape: tuple[int, ...], dtype: np.dtype[Any], memory: PopulatedMemory | None = None
) -> np.ndarray:
    """Allocates an array at an address that lets TensorFlow and XLA use its memory directly.

    Args:
        shape: Its shape.
        dtype: Type of its elements.
        memory: Memory to take it from while there is enough; None for new memory.
    """
    size = math.prod(shape) * dtype.itemsize
    content = None if memory is None else memory.take(size + ALIGNMENT)
    if content is None:
        content = np.empty(size + ALIGNMENT, np.uint8)
    start = -content.ctypes.data % ALIGNMENT
    return content[start : start + size].view(dtype).reshape(shape)


def as_aligned(array: np.ndarray) -> np.ndarray:
    """Returns the array, or a copy if TensorFlow and XLA can't use its memory directly."""
    flags = array.flags
    if flags.writeable and flags.c_contiguous and array.ctypes.data % ALIGNMENT == 0:
        return array
    copy = aligned(array.shape, array.dtype)
    copy[...] = array
    return copy
