"""Aligned arrays, whose memory TensorFlow and XLA use without copying it."""

import math
from typing import Any

import numpy as np

# Alignment of addresses in bytes, as in TensorFlow's own allocator.
ALIGNMENT = 64


def aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """Allocates an array at an address that lets TensorFlow and XLA use its memory directly."""
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


def as_aligned(array: np.ndarray) -> np.ndarray:
    """Returns the array, or a copy if TensorFlow and XLA can't use its memory directly."""
    flags = array.flags
    if flags.writeable and flags.c_contiguous and array.ctypes.data % ALIGNMENT == 0:
        return array
    copy = aligned(array.shape, array.dtype)
    copy[...] = array
    return copy
