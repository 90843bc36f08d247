"""Tensors as raw bytes: little-endian and row-major, as both faces of the protocol send them."""

import math
import struct
import sys
from collections.abc import Sequence

import numpy as np

from shaperouter_service.edge.inference.requests import Array
from shaperouter_service.errors import shortened
from shaperouter_service.tensors.dtypes import DType

# Maximum characters of a name from a caller in an error.
SHOWN = 64

# The length before each element of type BYTES.
_LENGTH = struct.Struct("<I")


def dtype_of(datatype: str) -> DType:
    """The data type of a name.

    Raises:
        ValueError: There is none.
    """
    try:
        return DType(datatype)
    except ValueError:
        known = ", ".join(DType)
        shown = shortened(datatype, SHOWN)
        raise ValueError(f"datatype must be one of {known}, got {shown!r}") from None


def array_from_bytes(content: bytes, dtype: DType, shape: Sequence[int]) -> Array:
    """The tensor of raw bytes, whose shape has been checked. Numbers share their memory.

    Raises:
        ValueError: The bytes do not fit data type and shape.
    """
    if dtype is DType.BYTES:
        return objects(_elements(content, math.prod(shape))).reshape(shape)
    due = math.prod(shape) * dtype.numpy.itemsize
    if len(content) != due:
        raise ValueError(
            f"must have {due} bytes for {dtype} of the shape {list(shape)}, got {len(content)}"
        )
    array = np.frombuffer(content, dtype.numpy)
    if sys.byteorder == "big":
        array = array.byteswap()
    if dtype is DType.BOOL and (wrong := array.view(np.uint8) > 1).any():
        value = content[int(wrong.argmax())]
        raise ValueError(f"must have bytes of 0 or 1 for BOOL, got {value}")
    return array.reshape(shape)


def bytes_of(array: Array) -> bytes:
    """A tensor as raw bytes."""
    if DType.of(array) is DType.BYTES:
        values = array.ravel().tolist()
        return b"".join(part for value in values for part in (_LENGTH.pack(len(value)), value))
    return (array.byteswap() if sys.byteorder == "big" else array).tobytes()


def objects(values: Sequence[bytes]) -> Array:
    """An array of elements of type BYTES."""
    array = np.empty(len(values), np.object_)
    array[:] = values
    return array


def _elements(content: bytes, count: int) -> list[bytes]:
    """Splits the content of a BYTES tensor: each element is preceded by its length."""
    elements = []
    offset, end = 0, len(content)
    for index in range(count):
        start = offset + _LENGTH.size
        if start > end:
            raise ValueError(
                f"must have {count} elements, got {index}: their bytes end at offset {end}"
            )
        (length,) = _LENGTH.unpack_from(content, offset)
        offset = start + length
        if offset > end:
            raise ValueError(
                f"element {index} must have {length} bytes, as its length says, got {end - start}"
            )
        elements.append(content[start:offset])
    if offset != end:
        raise ValueError(f"must have {count} elements, got {end - offset} bytes after them")
    return elements
