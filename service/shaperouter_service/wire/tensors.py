"""Tensors and their messages."""

import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from shaperouter.v1 import inference_pb2
from shaperouter_service.errors import Violations, shortened
from shaperouter_service.tensors.dtypes import DType
from shaperouter_service.tensors.shapes import MAX_DIMENSIONS
from shaperouter_service.wire.translation import Codec

_FROM_MESSAGE: Mapping[int, DType] = {
    inference_pb2.DataType.Value(f"DATA_TYPE_{dtype}"): dtype for dtype in DType
}

# Maximum elements of a tensor without its empty dimensions: more than any model has, and few enough
# for NumPy.
_MAX_ELEMENTS = 2**48

# Maximum characters of a name from a caller in an error.
_SHOWN = 64


def tensor_to_message(name: str, array: "np.ndarray[Any, Any]") -> inference_pb2.Tensor:
    """The message of a tensor."""
    dtype = DType.of(array)
    message = inference_pb2.Tensor(name=name, dtype=f"DATA_TYPE_{dtype}", shape=array.shape)
    if dtype is DType.BYTES:
        message.values.extend(array.ravel().tolist())
    else:
        message.content = _little_endian(array).tobytes()
    return message


def tensors_to_messages(
    tensors: "Mapping[str, np.ndarray[Any, Any]]",
) -> list[inference_pb2.Tensor]:
    """The messages of tensors."""
    return [tensor_to_message(name, array) for name, array in tensors.items()]


def tensors_codec(field: str) -> Codec:
    """Translates the tensors of a field, whose name is for errors."""
    return Codec(tensors_to_messages, lambda messages: tensors_from_messages(messages, field=field))


def tensors_from_messages(
    messages: Iterable[inference_pb2.Tensor], *, field: str
) -> "dict[str, np.ndarray[Any, Any]]":
    """The tensors of messages, by name. Arrays share the memory of their messages.

    Args:
        messages: The messages.
        field: The field that holds them, for errors.

    Raises:
        InvalidRequestError: A name is missing or occurs twice, a data type is unknown, or the
            content does not fit the shape.
    """
    tensors: dict[str, np.ndarray[Any, Any]] = {}
    violations = Violations()
    for index, message in enumerate(messages):
        faults = [*_faults(message)]
        if message.name in tensors:
            faults.append(f"repeats the name {shortened(message.name, _SHOWN)!r}")
        if faults:
            for fault in faults:
                violations.add(f"{field}[{index}]", fault)
        else:
            tensors[message.name] = _tensor(message)
    violations.refuse_any()
    return tensors


def _faults(message: inference_pb2.Tensor) -> Iterator[str]:
    """What is wrong with a message. Nothing is allocated."""
    if not message.name:
        yield "must have a name"
    dtype = _FROM_MESSAGE.get(message.dtype)
    if dtype is None:
        yield f"dtype must be one of DataType, got {message.dtype}"
        return
    shape = list(message.shape)
    if len(shape) > MAX_DIMENSIONS:
        yield f"shape must have at most {MAX_DIMENSIONS} dimensions, got {len(shape)}"
        return
    if any(size < 0 for size in shape):
        yield f"shape must have no negative size, got {shape}"
        return
    # NumPy refuses shapes whose other sizes it cannot count, even if one size is 0.
    if math.prod(filter(None, shape)) > _MAX_ELEMENTS:
        yield f"shape must have at most {_MAX_ELEMENTS} elements, got {shape}"
        return
    values, size = math.prod(shape), len(message.content)
    if dtype is DType.BYTES:
        if size:
            yield f"must have values, not content, for {dtype}"
        if len(message.values) != values:
            yield f"must have {values} values for the shape {shape}, got {len(message.values)}"
        return
    if message.values:
        yield f"must have content, not values, for {dtype}"
    due = values * dtype.numpy.itemsize
    if size != due:
        yield f"content must have {due} bytes for {dtype} of the shape {shape}, got {size}"
    elif dtype is DType.BOOL and message.content.strip(b"\0\1"):
        yield f"content must have only bytes 0 and 1 for {dtype}"


def _tensor(message: inference_pb2.Tensor) -> "np.ndarray[Any, Any]":
    dtype = _FROM_MESSAGE[message.dtype]
    if dtype is DType.BYTES:
        array = np.empty(len(message.values), dtype=np.object_)
        array[:] = message.values
    else:
        array = np.frombuffer(message.content, dtype=dtype.numpy)
        if sys.byteorder == "big":
            array = array.byteswap()
    return array.reshape(tuple(message.shape))


def _little_endian(array: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    return array.byteswap() if sys.byteorder == "big" else array
