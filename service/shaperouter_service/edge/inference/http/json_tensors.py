"""The elements of tensors as JSON."""

import json
import math
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from shaperouter_service.edge.inference.http.fields import told
from shaperouter_service.edge.inference.raw_tensors import objects
from shaperouter_service.edge.inference.requests import Array
from shaperouter_service.tensors.dtypes import DType

# The types of elements for each kind of data type, and their name in errors.
_ELEMENTS: Mapping[str, tuple[set[type], str]] = {
    "b": ({bool}, "true or false"),
    "i": ({int}, "integers"),
    "u": ({int}, "integers"),
    "f": ({int, float}, "numbers"),
    "O": ({str}, "texts"),
}
# Elements to write at a time: a few milliseconds, since nothing else runs meanwhile.
_WRITTEN_AT_ONCE = 2**14


def array_from_data(data: Any, dtype: DType, shape: Sequence[int]) -> Array:
    """The tensor of JSON data, whose shape has been checked.

    Raises:
        ValueError: The data do not fit data type and shape.
    """
    if dtype in (DType.FP16, DType.BF16):
        raise ValueError(f"must be binary data, as JSON has no form for {dtype}")
    values = _elements(data, shape)
    types, named = _ELEMENTS[dtype.numpy.kind]
    if not types.issuperset(map(type, values)):
        wrong = next(value for value in values if type(value) not in types)
        raise ValueError(f"data must be {named} for {dtype}, got {told(wrong)}")
    if dtype is DType.BYTES:
        array = objects([value.encode() for value in values])
    elif dtype.numpy.kind in "iu":
        array = _integers(values, dtype)
    else:
        array = _numbers(values, dtype)
    return array.reshape(shape)


def data_of(array: Array) -> str:
    """The elements of a tensor as a JSON list in row-major order.

    Raises:
        ValueError: JSON has no form for an element.
    """
    dtype = DType.of(array)
    if dtype in (DType.FP16, DType.BF16):
        raise ValueError(f"JSON has no form for {dtype}")
    if dtype.numpy.kind == "f" and not np.isfinite(array).all():
        raise ValueError("it has elements that are not finite, which JSON cannot have")
    flat = array.ravel()
    parts = []
    for start in range(0, flat.size, _WRITTEN_AT_ONCE):
        values = flat[start : start + _WRITTEN_AT_ONCE].tolist()
        if dtype is DType.BYTES:
            values = texts_of(values)
        parts.append(json.dumps(values, ensure_ascii=False, separators=(",", ":"))[1:-1])
    return f"[{','.join(parts)}]"


def texts_of(values: Sequence[bytes]) -> list[str]:
    """Elements of type BYTES as texts.

    Raises:
        ValueError: An element is none.
    """
    try:
        return [value.decode() for value in values]
    except UnicodeDecodeError as error:
        raise ValueError("it has elements that are not UTF-8, which JSON cannot have") from error


def _elements(data: Any, shape: Sequence[int]) -> list[Any]:
    """The elements of one list in row-major order, or of lists that are nested like the shape."""
    if not isinstance(data, list):
        raise ValueError(f"data must be a list, got {told(data)}")  # noqa: TRY004 (bad input)
    if len(shape) < 2 or not data or not isinstance(data[0], list):
        count = math.prod(shape)
        if len(data) != count:
            raise ValueError(
                f"data must have {count} elements for the shape {list(shape)}, got {len(data)}"
            )
        return data
    level = [data]
    for depth, size in enumerate(shape):
        for each in level:
            if not isinstance(each, list) or len(each) != size:
                got = len(each) if isinstance(each, list) else told(each)
                raise ValueError(
                    f"data must be nested like the shape {list(shape)}, with {size} elements in "
                    f"each list of dimension {depth}, got {got}"
                )
        level = list(chain.from_iterable(level))
    return level


def _integers(values: Sequence[int], dtype: DType) -> Array:
    limits = np.iinfo(dtype.numpy)
    for value in (min(values, default=0), max(values, default=0)):
        if not limits.min <= value <= limits.max:
            raise ValueError(
                f"data must be from {limits.min} to {limits.max} for {dtype}, got {told(value)}"
            )
    return np.array(values, dtype.numpy)


def _numbers(values: Sequence[float], dtype: DType) -> Array:
    try:
        with np.errstate(over="ignore"):
            array = np.array(values, dtype.numpy)
    except OverflowError:
        # The smallest power of two that is too large for double precision.
        array = np.array([math.inf])
    if not np.isfinite(array).all():
        raise ValueError(f"data must be within the range of {dtype}, got a larger number")
    return array
