"""Tensors of TensorFlow's protos survive, and broken ones are refused."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from shaperouter_service.edge.tfserving.stubs.tensorflow.core.framework.tensor_pb2 import (
    TensorProto,
)
from shaperouter_service.edge.tfserving.tensors import (
    data_type,
    tensor_to_message,
    tensors_from_messages,
)
from shaperouter_service.errors import InvalidRequestError
from shaperouter_service.tensors.dtypes import DType


def message_of(dtype: str, shape: list[int], **fields: Any) -> TensorProto:
    message = TensorProto(dtype=dtype, **fields)
    for size in shape:
        message.tensor_shape.dim.add(size=size)
    return message


def read(message: TensorProto) -> Any:
    return tensors_from_messages({"x": message})["x"]


@given(st.data(), st.sampled_from([each for each in DType if each is not DType.BYTES]))
def test_numbers_survive_as_values_and_as_bytes(data: st.DataObject, dtype: DType) -> None:
    bits = np.dtype(f"u{dtype.numpy.itemsize}")
    shape = data.draw(arrays_of.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
    values = data.draw(arrays_of.arrays(bits, shape))
    array = (values & 1).view(dtype.numpy) if dtype is DType.BOOL else values.view(dtype.numpy)
    if dtype in (DType.FP32, DType.FP64):
        # Python's numbers do not keep the bits of every NaN.
        array = np.nan_to_num(array)
    message = tensor_to_message(array)
    as_bytes = TensorProto(dtype=data_type(dtype), tensor_content=array.tobytes())
    as_bytes.tensor_shape.CopyFrom(message.tensor_shape)
    for found in (read(message), read(as_bytes)):
        assert (found.dtype, found.shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(found.view(bits), array.view(bits))


@given(st.lists(st.binary(max_size=5)))
def test_bytes_survive(values: list[bytes]) -> None:
    array = np.empty(len(values), np.object_)
    array[:] = values
    assert read(tensor_to_message(array)).tolist() == values


def test_many_tensors_of_repeated_values_are_refused_before_anything_is_allocated() -> None:
    message = message_of("DT_FLOAT", [2**22], float_val=[1.0])
    with pytest.raises(InvalidRequestError, match=r"inputs: must have at most \d+ bytes together"):
        tensors_from_messages({f"x{index}": message for index in range(3)})
    assert tensors_from_messages({"x": message, "y": message}).keys() == {"x", "y"}


def test_answers_have_the_fields_that_clients_read() -> None:
    assert tensor_to_message(np.float32([[1.5]])).float_val == [1.5]
    assert tensor_to_message(np.int8([1])).int_val == [1]
    assert tensor_to_message(np.array([b"a"], object)).string_val == [b"a"]


@pytest.mark.parametrize(
    ("message", "elements"),
    [
        (message_of("DT_FLOAT", [2, 2], float_val=[1, 2]), [[1, 2], [2, 2]]),
        (message_of("DT_INT64", [3], int64_val=[7]), [7, 7, 7]),
        (message_of("DT_HALF", [2], half_val=[0x3C00]), [1, 1]),
        (message_of("DT_INT32", [2]), [0, 0]),
        (message_of("DT_STRING", [2], string_val=[b"a"]), [b"a", b"a"]),
        (message_of("DT_STRING", [1]), [b""]),
        (message_of("DT_FLOAT", [], float_val=[3]), 3),
        (message_of("DT_FLOAT", [0]), []),
    ],
)
def test_the_last_value_stands_for_those_that_are_missing(
    message: TensorProto, elements: Any
) -> None:
    assert read(message).tolist() == elements


@pytest.mark.parametrize(
    ("message", "fault"),
    [
        (message_of("DT_COMPLEX64", [1]), "dtype must be one of DT_BOOL, DT_UINT8"),
        (message_of("DT_COMPLEX64", [1]), "got DT_COMPLEX64"),
        (TensorProto(dtype=4711), "got 4711"),
        (message_of("DT_FLOAT", [-1]), "shape must have no negative size, got [-1]"),
        (TensorProto(dtype=1, tensor_shape={"unknown_rank": True}), "got an unknown rank"),
        (message_of("DT_FLOAT", [2**40], float_val=[0]), f"33554432 bytes, got {2**42}"),
        (message_of("DT_FLOAT", [1], float_val=[1, 2]), "1 values for the shape [1], got 2"),
        (message_of("DT_FLOAT", [1], int_val=[1]), "must have float_val for FP32, got int_val"),
        (message_of("DT_FLOAT", [2], tensor_content=bytes(7)), "8 bytes for FP32 of the shape [2]"),
        (
            message_of("DT_FLOAT", [1], tensor_content=bytes(4), float_val=[1]),
            "must not have float_val together with tensor_content",
        ),
        (message_of("DT_STRING", [1], tensor_content=b"\1a"), "must have string_val for BYTES"),
        (message_of("DT_INT8", [1], int_val=[128]), "from -128 to 127 for INT8, got 128"),
        (message_of("DT_HALF", [1], half_val=[65536]), "from 0 to 65535 for FP16, got 65536"),
        (message_of("DT_BOOL", [1], tensor_content=b"\2"), "bytes of 0 or 1 for BOOL, got 2"),
    ],
    ids=str,
)
def test_a_broken_tensor_is_refused_with_name_limit_and_value(
    message: TensorProto, fault: str
) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        read(message)
    (violation,) = caught.value.violations
    assert violation.field == "inputs.x"
    assert fault in violation.description
