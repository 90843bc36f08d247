"""Tensors over gRPC: raw bytes, or lists of values for each data type."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from shaperouter_service.edge.inference.raw_tensors import (
    SHOWN,
    array_from_bytes,
    bytes_of,
    dtype_of,
    objects,
)
from shaperouter_service.edge.inference.requests import Array
from shaperouter_service.edge.inference.stubs import grpc_service_pb2
from shaperouter_service.errors import InvalidRequestError, Violations, shortened
from shaperouter_service.tensors.dtypes import DType
from shaperouter_service.tensors.shapes import shape_fault

Request: TypeAlias = grpc_service_pb2.ModelInferRequest
Response: TypeAlias = grpc_service_pb2.ModelInferResponse
_Input: TypeAlias = grpc_service_pb2.ModelInferRequest.InferInputTensor

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
        raise InvalidRequestError.of("raw_input_contents", description)
    arrays: dict[str, Array] = {}
    violations = Violations()
    for index, (tensor, content) in enumerate(zip(request.inputs, raw, strict=True)):
        name = shortened(tensor.name, SHOWN)
        path = f"inputs.{name}" if tensor.name else f"inputs[{index}]"
        faults = [*_faults(tensor, content)]
        if tensor.name in arrays:
            faults.append("must occur only once")
        if not faults:
            try:
                arrays[tensor.name] = _array(tensor, content)
            except ValueError as error:
                faults.append(str(error))
        for fault in faults:
            violations.add(path, fault)
    violations.refuse_any()
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
        response.raw_output_contents.append(bytes_of(array))
    else:
        getattr(tensor.contents, _CONTENTS[dtype]).extend(array.ravel().tolist())


def has_typed_form(arrays: Iterable[Array]) -> bool:
    """Whether tensors can be written as lists of values."""
    return all(DType.of(array) in _CONTENTS for array in arrays)


def _faults(tensor: _Input, content: bytes | None) -> Iterator[str]:
    """What is wrong with a tensor, as far as it shows without reading elements."""
    if not tensor.name:
        yield "name must be set"
    for parameter in tensor.parameters:
        yield f"must have no parameters, got {shortened(parameter, SHOWN)!r}"
    try:
        dtype = dtype_of(tensor.datatype)
    except ValueError as error:
        yield str(error)
        return
    if fault := shape_fault(tensor.shape, dtype):
        yield fault
        return
    if content is None:
        yield from _typed_faults(tensor, dtype, math.prod(tensor.shape))
    elif tensor.HasField("contents"):
        yield "must not have contents together with raw_input_contents"


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
    if content is not None:
        return array_from_bytes(content, dtype, shape)
    return _typed_array(getattr(tensor.contents, _CONTENTS[dtype]), dtype).reshape(shape)


def _typed_array(values: Sequence[Any], dtype: DType) -> Array:
    if dtype is DType.BYTES:
        return objects(values)
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
