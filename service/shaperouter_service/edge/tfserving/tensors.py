"""Tensors of TensorFlow's protos: little-endian bytes, or lists of values for each data type."""

import math
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from shaperouter_service.edge.tfserving.stubs.tensorflow.core.framework.tensor_pb2 import (
    TensorProto,
)
from shaperouter_service.edge.tfserving.stubs.tensorflow.core.framework.tensor_shape_pb2 import (
    TensorShapeProto,
)
from shaperouter_service.edge.tfserving.stubs.tensorflow.core.framework.types_pb2 import DataType
from shaperouter_service.errors import Violations, shortened
from shaperouter_service.tensors.dtypes import DType
from shaperouter_service.tensors.shapes import (
    MAX_TENSOR_BYTES,
    check_count,
    element_bytes,
    shape_fault,
)

Array: TypeAlias = "np.ndarray[Any, Any]"

# Maximum characters of a name from a caller in an error.
_SHOWN = 64


class _Form(NamedTuple):
    """How elements of a type are written: the field of their values, and the type of these."""

    field: str
    values: "np.dtype[Any]"


# Types of values as they are in messages; those of half precision are the bits of the numbers.
_FORMS: Mapping[DType, _Form] = {
    DType.BOOL: _Form("bool_val", np.dtype(np.bool_)),
    DType.UINT8: _Form("int_val", np.dtype(np.int64)),
    DType.UINT16: _Form("int_val", np.dtype(np.int64)),
    DType.UINT32: _Form("uint32_val", np.dtype(np.uint32)),
    DType.UINT64: _Form("uint64_val", np.dtype(np.uint64)),
    DType.INT8: _Form("int_val", np.dtype(np.int64)),
    DType.INT16: _Form("int_val", np.dtype(np.int64)),
    DType.INT32: _Form("int_val", np.dtype(np.int64)),
    DType.INT64: _Form("int64_val", np.dtype(np.int64)),
    DType.FP16: _Form("half_val", np.dtype(np.int64)),
    DType.BF16: _Form("half_val", np.dtype(np.int64)),
    DType.FP32: _Form("float_val", np.dtype(np.float32)),
    DType.FP64: _Form("double_val", np.dtype(np.float64)),
    DType.BYTES: _Form("string_val", np.dtype(np.object_)),
}
_FACTS = {"dtype", "tensor_shape", "version_number"}

_TO_MESSAGE: Mapping[DType, Any] = {
    DType.BOOL: DataType.DT_BOOL,
    DType.UINT8: DataType.DT_UINT8,
    DType.UINT16: DataType.DT_UINT16,
    DType.UINT32: DataType.DT_UINT32,
    DType.UINT64: DataType.DT_UINT64,
    DType.INT8: DataType.DT_INT8,
    DType.INT16: DataType.DT_INT16,
    DType.INT32: DataType.DT_INT32,
    DType.INT64: DataType.DT_INT64,
    DType.FP16: DataType.DT_HALF,
    DType.BF16: DataType.DT_BFLOAT16,
    DType.FP32: DataType.DT_FLOAT,
    DType.FP64: DataType.DT_DOUBLE,
    DType.BYTES: DataType.DT_STRING,
}
_FROM_MESSAGE = {message: dtype for dtype, message in _TO_MESSAGE.items()}


def data_type(dtype: DType) -> Any:
    """The message's value for a data type."""
    return _TO_MESSAGE[dtype]


def tensors_from_messages(messages: Mapping[str, TensorProto]) -> dict[str, Array]:
    """The tensors of a request, by name. Arrays of numbers share the memory of bytes.

    Raises:
        InvalidRequestError: A data type is not served, or the elements do not fit data type and
            shape. Nothing is allocated for such a tensor.
    """
    check_count(len(messages), "inputs")
    violations = Violations()
    for name, message in messages.items():
        for fault in _faults(message):
            violations.add(_field(name), fault)
    # A value can stand for any number of elements, in each of many tensors.
    if not violations and (due := sum(map(_due_bytes, messages.values()))) > MAX_TENSOR_BYTES:
        description = f"must have at most {MAX_TENSOR_BYTES} bytes together, got {due}"
        violations.add("inputs", description)
    violations.refuse_any()
    arrays: dict[str, Array] = {}
    for name, message in messages.items():
        try:
            arrays[name] = _array(message)
        except ValueError as error:
            violations.add(_field(name), str(error))
    violations.refuse_any()
    return arrays


def tensor_to_message(array: Array) -> TensorProto:
    """The message of a tensor, as a list of values: clients read these fields directly."""
    dtype = DType.of(array)
    dims = [TensorShapeProto.Dim(size=size) for size in array.shape]
    message = TensorProto(dtype=data_type(dtype), tensor_shape=TensorShapeProto(dim=dims))
    form = _FORMS[dtype]
    if form.field == "half_val":
        array = array.view(np.uint16)
    getattr(message, form.field).extend(array.ravel().tolist())
    return message


def _field(name: str) -> str:
    return f"inputs.{shortened(name, _SHOWN)}"


def _due_bytes(message: TensorProto) -> int:
    """Bytes of the elements of a tensor without faults."""
    return math.prod(_shape(message)) * element_bytes(_FROM_MESSAGE[message.dtype])


def _faults(message: TensorProto) -> Iterator[str]:
    """What is wrong with a tensor, as far as it shows without reading elements."""
    dtype = _FROM_MESSAGE.get(message.dtype)
    if dtype is None:
        known = ", ".join(DataType.Name(each) for each in _FROM_MESSAGE)
        yield f"dtype must be one of {known}, got {_name(message.dtype)}"
        return
    if message.tensor_shape.unknown_rank:
        yield "tensor_shape must have dimensions, got an unknown rank"
        return
    shape = _shape(message)
    if fault := shape_fault(shape, dtype):
        yield fault
        return
    count, field = math.prod(shape), _FORMS[dtype].field
    given = {each.name: value for each, value in message.ListFields() if each.name not in _FACTS}
    for other in given.keys() - {field, "tensor_content"}:
        yield f"must have {field} for {dtype}, got {other}"
    if "tensor_content" in given:
        due = count * dtype.numpy.itemsize
        if dtype is DType.BYTES:
            yield f"must have {field} for {dtype}, got tensor_content"
        elif field in given:
            yield f"must not have {field} together with tensor_content"
        elif len(message.tensor_content) != due:
            yield (
                f"tensor_content must have {due} bytes for {dtype} of the shape {shape}, got "
                f"{len(message.tensor_content)}"
            )
    elif len(given.get(field, ())) > count:
        yield f"{field} must have {count} values for the shape {shape}, got {len(given[field])}"


def _array(message: TensorProto) -> Array:
    """The elements of a tensor.

    Raises:
        ValueError: An element does not fit the data type.
    """
    dtype, shape = _FROM_MESSAGE[message.dtype], tuple(_shape(message))
    if message.tensor_content:
        array = np.frombuffer(message.tensor_content, dtype.numpy)
        if dtype is DType.BOOL and (wrong := array.view(np.uint8) > 1).any():
            value = message.tensor_content[int(wrong.argmax())]
            raise ValueError(f"must have bytes of 0 or 1 for BOOL, got {value}")
        if sys.byteorder == "big":
            array = array.byteswap()
        return array.reshape(shape)
    values = getattr(message, _FORMS[dtype].field)
    given = np.empty(len(values), _FORMS[dtype].values)
    given[:] = values
    given = _narrowed(given, dtype)
    count = math.prod(shape)
    if len(given) < count:
        # The last value stands for all that are missing, and zero or no bytes if there is none.
        last = given[-1] if len(given) else (b"" if dtype is DType.BYTES else dtype.numpy.type(0))
        given = np.concatenate([given, np.full(count - len(given), last, dtype.numpy)])
    return given.reshape(shape)


def _narrowed(values: Array, dtype: DType) -> Array:
    """Values as elements of a data type, where fields of wider integers hold them."""
    if values.dtype == dtype.numpy:
        return values
    bits = np.dtype(np.uint16) if dtype in (DType.FP16, DType.BF16) else dtype.numpy
    limits = np.iinfo(bits)
    outside = (values < limits.min) | (values > limits.max)
    if outside.any():
        value = values[int(outside.argmax())]
        raise ValueError(f"must be from {limits.min} to {limits.max} for {dtype}, got {value}")
    return values.astype(bits).view(dtype.numpy)


def _shape(message: TensorProto) -> list[int]:
    return [dimension.size for dimension in message.tensor_shape.dim]


def _name(value: int) -> str:
    return DataType.Name(value) if value in DataType.values() else str(value)
