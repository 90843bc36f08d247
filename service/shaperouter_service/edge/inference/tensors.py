"""Tensors of Open Inference: raw little-endian bytes, or lists of values for each data type."""

import math
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from shaperouter_service.edge.inference.stubs import grpc_service_pb2
from shaperouter_service.errors import InvalidRequestError, Violation, shortened
from shaperouter_service.tensors.dtypes import DType
from shaperouter_service.tensors.shapes import shape_fault

Array: TypeAlias = "np.ndarray[Any, Any]"
Request: TypeAlias = grpc_service_pb2.ModelInferRequest
Response: TypeAlias = grpc_service_pb2.ModelInferResponse
_Input: TypeAlias = grpc_service_pb2.ModelInferRequest.InferInputTensor

# Maximum characters of a name from a caller in an error.
_SHOWN = 64

# The field of `InferTensorContents` for each data type; half-precision numbers have none.
_CONTENTS: Mapping[DType, str] = {
    DType.BOOL: "bool_contents",
    DType.UINT8: "uint_contents",
    DType.UINT16: "uint_contents",
    DType.UINT32: "uint_contents",
    DType.UINT64: "uint64_contents",
    DType.INT8: "int_contents",
    DType.INT16: "int_contents",
    DType.INT32: "int_contents",
    DType.INT64: "int64_contents",
    DType.FP32: "fp32_contents",
    DType.FP64: "fp64_contents",
    DType.BYTES: "bytes_contents",
}

# The length before each element of type BYTES.
_LENGTH = struct.Struct("<I")


def is_raw(request: Request) -> bool:
    """Whether a request's tensors are bytes; without tensors they are."""
    return bool(request.raw_input_contents) or not request.inputs


def tensors_from_request(request: Request) -> dict[str, Array]:
    """The tensors of a request, by name. Arrays of numbers share the memory of raw bytes.

    Raises:
        InvalidRequestError: A name is missing or occurs twice, a data type is unknown, or the
            elements do not fit data type and shape. Nothing is allocated for such a request.
    """
    raw: Sequence[bytes | None] = request.raw_input_contents
    if not is_raw(request):
        raw = [None] * len(request.inputs)
    elif len(raw) != len(request.inputs):
        description = f"must have {len(request.inputs)} entries, one for each input, got {len(raw)}"
        raise InvalidRequestError(Violation(field="raw_input_contents", description=description))
    arrays: dict[str, Array] = {}
    violations: list[Violation] = []
    for index, (tensor, content) in enumerate(zip(request.inputs, raw, strict=True)):
        name = shortened(tensor.name, _SHOWN)
        path = f"inputs.{name}" if tensor.name else f"inputs[{index}]"
        faults = [*_faults(tensor, content)]
        if tensor.name in arrays:
            faults.append("must occur only once")
        if not faults:
            try:
                arrays[tensor.name] = _array(tensor, content)
            except ValueError as error:
                faults.append(str(error))
        violations.extend(Violation(field=path, description=fault) for fault in faults)
    if violations:
        raise InvalidRequestError(*violations)
    return arrays


def add_tensor(response: Response, name: str, array: Array, *, raw: bool) -> None:
    """Adds a tensor to a response.

    Args:
        response: The response.
        name: Name of the tensor.
        array: Its elements.
        raw: Whether to write bytes. Half-precision numbers have no other form, and a response has
            one form for all of its tensors.
    """
    dtype = DType.of(array)
    tensor = response.outputs.add(name=name, datatype=dtype, shape=array.shape)
    if raw:
        response.raw_output_contents.append(_raw(array, dtype))
    else:
        getattr(tensor.contents, _CONTENTS[dtype]).extend(array.ravel().tolist())


def has_typed_form(arrays: Iterator[Array]) -> bool:
    """Whether tensors can be written as lists of values."""
    return all(DType.of(array) in _CONTENTS for array in arrays)


def _faults(tensor: _Input, content: bytes | None) -> Iterator[str]:
    """What is wrong with a tensor, as far as it shows without reading elements."""
    if not tensor.name:
        yield "name must be set"
    for parameter in tensor.parameters:
        yield f"must have no parameters, got {shortened(parameter, _SHOWN)!r}"
    try:
        dtype = DType(tensor.datatype)
    except ValueError:
        known = ", ".join(DType)
        yield f"datatype must be one of {known}, got {shortened(tensor.datatype, _SHOWN)!r}"
        return
    if fault := shape_fault(tensor.shape, dtype):
        yield fault
        return
    shape = list(tensor.shape)
    if content is None:
        yield from _typed_faults(tensor, dtype, math.prod(shape))
    elif tensor.HasField("contents"):
        yield "must not have contents together with raw_input_contents"
    elif dtype is not DType.BYTES:
        due = math.prod(shape) * dtype.numpy.itemsize
        if len(content) != due:
            yield f"must have {due} bytes for {dtype} of the shape {shape}, got {len(content)}"


def _typed_faults(tensor: _Input, dtype: DType, count: int) -> Iterator[str]:
    field = _CONTENTS.get(dtype)
    if field is None:
        yield f"must be in raw_input_contents, as contents have no field for {dtype}"
        return
    for other, values in tensor.contents.ListFields():
        if other.name != field:
            yield f"contents must have {field} for {dtype}, got {other.name}"
        elif len(values) != count:
            shape = list(tensor.shape)
            yield f"{field} must have {count} values for the shape {shape}, got {len(values)}"
    if count and not tensor.contents.ListFields():
        yield f"must have contents.{field}, or bytes in raw_input_contents, got neither"


def _array(tensor: _Input, content: bytes | None) -> Array:
    """The elements of a tensor.

    Raises:
        ValueError: An element does not fit the data type, or is cut short.
    """
    dtype, shape = DType(tensor.datatype), tuple(tensor.shape)
    if content is None:
        array = _typed_array(getattr(tensor.contents, _CONTENTS[dtype]), dtype)
    elif dtype is DType.BYTES:
        array = _objects(_elements(content, math.prod(shape)))
    else:
        array = np.frombuffer(content, dtype.numpy)
        if sys.byteorder == "big":
            array = array.byteswap()
        if dtype is DType.BOOL and (wrong := array.view(np.uint8) > 1).any():
            value = content[int(wrong.argmax())]
            raise ValueError(f"must have bytes of 0 or 1 for BOOL, got {value}")
    return array.reshape(shape)


def _typed_array(values: Sequence[Any], dtype: DType) -> Array:
    if dtype is DType.BYTES:
        return _objects(values)
    # Integers of 8 and 16 bits share a field with those of 32.
    wide = {"i": np.dtype(np.int64), "u": np.dtype(np.uint64)}.get(dtype.numpy.kind, dtype.numpy)
    array = np.empty(len(values), wide)
    # Much faster than element by element.
    array[:] = values
    if wide.kind in "iu":
        limits = np.iinfo(dtype.numpy)
        outside = (array < limits.min) | (array > limits.max)
        if outside.any():
            value = array[int(outside.argmax())]
            raise ValueError(f"must be from {limits.min} to {limits.max} for {dtype}, got {value}")
    return array.astype(dtype.numpy, copy=False)


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


def _objects(values: Sequence[bytes]) -> Array:
    array = np.empty(len(values), np.object_)
    array[:] = values
    return array


def _raw(array: Array, dtype: DType) -> bytes:
    if dtype is DType.BYTES:
        values = array.ravel().tolist()
        return b"".join(part for value in values for part in (_LENGTH.pack(len(value)), value))
    return (array.byteswap() if sys.byteorder == "big" else array).tobytes()
