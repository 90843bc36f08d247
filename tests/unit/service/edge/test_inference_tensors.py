"""Tensors of Open Inference survive both of their forms, and broken ones are refused."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from shaperouter_service.edge.inference.grpc.tensors import (
    add_tensor,
    has_typed_form,
    tensors_from_request,
)
from shaperouter_service.edge.inference.requests import Array
from shaperouter_service.edge.inference.stubs import grpc_service_pb2
from shaperouter_service.errors import InvalidRequestError
from shaperouter_service.tensors.dtypes import DType

TYPED = [dtype for dtype in DType if dtype not in (DType.FP16, DType.BF16)]


def sent(array: Array, *, raw: bool) -> Array:
    """The tensor after it has been sent in a response, and back in a request."""
    response = grpc_service_pb2.ModelInferResponse()
    add_tensor(response, "x", array, raw=raw)
    (output,) = response.outputs
    request = grpc_service_pb2.ModelInferRequest(raw_input_contents=response.raw_output_contents)
    request.inputs.add(name="x", datatype=output.datatype, shape=output.shape)
    if output.HasField("contents"):
        request.inputs[0].contents.CopyFrom(output.contents)
    (found,) = tensors_from_request(request).values()
    return found


def request_of(
    datatype: str, shape: list[int], content: bytes | None = None, **contents: Any
) -> grpc_service_pb2.ModelInferRequest:
    request = grpc_service_pb2.ModelInferRequest()
    request.inputs.add(name="x", datatype=datatype, shape=shape)
    if contents:
        request.inputs[0].contents.CopyFrom(grpc_service_pb2.InferTensorContents(**contents))
    if content is not None:
        request.raw_input_contents.append(content)
    return request


def fault(request: grpc_service_pb2.ModelInferRequest) -> str:
    with pytest.raises(InvalidRequestError) as caught:
        tensors_from_request(request)
    (violation,) = caught.value.violations
    return f"{violation.field}: {violation.description}"


@given(st.data(), st.sampled_from([each for each in DType if each is not DType.BYTES]))
def test_numbers_survive_as_bytes(data: st.DataObject, dtype: DType) -> None:
    bits = np.dtype(f"u{dtype.numpy.itemsize}")
    shape = data.draw(arrays_of.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
    values = data.draw(arrays_of.arrays(bits, shape))
    array = (values & 1).view(dtype.numpy) if dtype is DType.BOOL else values.view(dtype.numpy)
    found = sent(array, raw=True)
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(found.view(bits), array.view(bits))


@given(st.data(), st.sampled_from([each for each in TYPED if each is not DType.BYTES]))
def test_numbers_survive_as_lists_of_values(data: st.DataObject, dtype: DType) -> None:
    shape = data.draw(arrays_of.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
    array = data.draw(arrays_of.arrays(dtype.numpy, shape))
    found = sent(array, raw=False)
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(found, array)


@given(st.lists(st.binary(max_size=5)), st.booleans())
def test_bytes_survive(values: list[bytes], raw: bool) -> None:
    array = np.empty(len(values), np.object_)
    array[:] = values
    assert sent(array, raw=raw).tolist() == values


def test_half_precision_has_no_list_of_values() -> None:
    half = np.zeros(1, np.float16)
    assert not has_typed_form(iter([half]))
    wrong = request_of("FP16", [1], fp32_contents=[1.0])
    assert fault(wrong).startswith("inputs.x: must be in raw_input_contents")


def test_raw_bytes_are_little_endian_and_row_major() -> None:
    (found,) = tensors_from_request(request_of("INT16", [2, 1], b"\x01\x00\x00\x01")).values()
    assert found.tolist() == [[1], [256]]


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (request_of("FLOAT", [1], bytes(4)), "datatype must be one of BOOL, UINT8"),
        (request_of("FP32", [-1], b""), "shape must have no negative size, got [-1]"),
        (request_of("FP32", [1] * 33, bytes(4)), "at most 32 dimensions, got 33"),
        (request_of("FP32", [2**20, 2**20], b""), f"33554432 bytes, got {2**42} (FP32"),
        (request_of("FP32", [0, 2**62], b""), "must have at most 33554432 bytes"),
        (request_of("BYTES", [2**40], b""), "must have at most 33554432 bytes"),
        (request_of("FP32", [2], bytes(7)), "must have 8 bytes for FP32 of the shape [2], got 7"),
        (request_of("FP32", [2], fp32_contents=[1]), "2 values for the shape [2], got 1"),
        (request_of("FP32", [1], int_contents=[1]), "must have fp32_contents for FP32, got int_c"),
        (request_of("FP32", [1]), "contents.fp32_contents, or bytes in raw_input_contents"),
        (request_of("FP32", [1], bytes(4), fp32_contents=[1]), "must not have contents together"),
        (request_of("INT8", [2], int_contents=[1, 128]), "from -128 to 127 for INT8, got 128"),
        (request_of("UINT16", [1], uint_contents=[70000]), "from 0 to 65535 for UINT16"),
        (request_of("BOOL", [2], b"\x01\x02"), "bytes of 0 or 1 for BOOL, got 2"),
        (request_of("BYTES", [2], b"\x01\0\0\0a"), "must have 2 elements, got 1"),
        (request_of("BYTES", [1], b"\x05\0\0\0abc"), "must have 5 bytes, as its length says"),
        (request_of("BYTES", [1], b"\x01\0\0\0abc"), "1 elements, got 2 bytes after them"),
        (request_of("BYTES", [1], b"\x01\0"), "must have 1 elements, got 0"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_broken_tensor_is_refused_with_name_limit_and_value(
    request_: grpc_service_pb2.ModelInferRequest, message: str
) -> None:
    found = fault(request_)
    assert found.startswith("inputs.x: ")
    assert message in found


def test_every_tensor_needs_its_bytes() -> None:
    request = request_of("FP32", [1], bytes(4))
    request.raw_input_contents.append(bytes(4))
    assert fault(request) == "raw_input_contents: must have 1 entries, one for each input, got 2"


def test_a_tensor_needs_a_name_that_no_other_has() -> None:
    request = request_of("FP32", [0], b"")
    request.inputs.add(name="x", datatype="FP32", shape=[0])
    request.raw_input_contents.append(b"")
    assert fault(request) == "inputs.x: must occur only once"
    request.inputs[1].name = ""
    assert fault(request) == "inputs[1]: name must be set"


def test_shared_memory_is_not_served() -> None:
    request = request_of("FP32", [0], b"")
    request.inputs[0].parameters["shared_memory_region"].string_param = "region"
    assert fault(request) == "inputs.x: must have no parameters, got 'shared_memory_region'"
