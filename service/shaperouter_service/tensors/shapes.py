"""Limits of tensors, checked before anything is allocated."""

import math
from collections.abc import Sequence

from shaperouter_service.errors import InvalidRequestError
from shaperouter_service.tensors.dtypes import DType

# Maximum tensors of a request, named ones of either direction: functions of tables have one input
# for each column.
MAX_TENSORS = 4096

# Maximum dimensions of a tensor; NumPy has at most 64, and nobody uses more than a few.
MAX_DIMENSIONS = 32

# Maximum bytes of a tensor's elements, whatever form a request has them in: protocols that repeat
# a value could ask for any number of elements in a small message. As much as a request may have.
# Elements of type BYTES count as `BYTES_OF_OBJECT`, beside their contents.
MAX_TENSOR_BYTES = 32 * 2**20
BYTES_OF_OBJECT = 8


def check_count(count: int, field: str) -> None:
    """Checks the number of tensors in a field of a request.

    Raises:
        InvalidRequestError: There are too many.
    """
    if count > MAX_TENSORS:
        rule = f"must have at most {MAX_TENSORS} tensors, got {count}"
        raise InvalidRequestError.of(field, rule)


def element_bytes(dtype: DType) -> int:
    """Bytes that an element counts as."""
    return BYTES_OF_OBJECT if dtype is DType.BYTES else dtype.numpy.itemsize


def shape_fault(shape: Sequence[int], dtype: DType) -> str | None:
    """What is wrong with a shape from a caller, if anything."""
    if len(shape) > MAX_DIMENSIONS:
        return f"shape must have at most {MAX_DIMENSIONS} dimensions, got {len(shape)}"
    if any(size < 0 for size in shape):
        return f"shape must have no negative size, got {list(shape)}"
    # A size of 0 does not make the others small: arrays check the product of the rest.
    due = math.prod(max(1, each) for each in shape) * element_bytes(dtype)
    if due > MAX_TENSOR_BYTES:
        return (
            f"must have at most {MAX_TENSOR_BYTES} bytes, got {due} ({dtype} of the shape "
            f"{list(shape)})"
        )
    return None
