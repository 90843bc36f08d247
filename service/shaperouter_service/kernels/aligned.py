"""Memory that TensorFlow and XLA take over as it is."""

import math
from typing import Any

import numpy as np

# Of addresses, in bytes: what TensorFlow's own allocator gives.
ALIGNMENT = 64


def aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """An array at an address at which TensorFlow and XLA take memory over instead of copying it."""
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


def as_aligned(array: np.ndarray) -> np.ndarray:
    """The array, or a copy if TensorFlow and XLA can't take over its memory."""
    flags = array.flags
    if flags.writeable and flags.c_contiguous and array.ctypes.data % ALIGNMENT == 0:
        return array
    copy = aligned(array.shape, array.dtype)
    copy[...] = array
    return copy
