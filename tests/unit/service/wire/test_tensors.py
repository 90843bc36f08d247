"""Tensors survive their messages, and messages that do not fit are refused."""

import numpy as np
import pytest

from shaperouter.v1 import inference_pb2
from shaperouter_service.errors import InvalidRequestError
from shaperouter_service.tensors.dtypes import DType
from shaperouter_service.wire.tensors import tensor_to_message, tensors_from_messages


@pytest.mark.parametrize("dtype", [each for each in DType if each is not DType.BYTES])
@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 3)])
def test_numbers_survive(dtype: DType, shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape)).reshape(shape).astype(dtype.numpy)
    (found,) = tensors_from_messages([tensor_to_message("x", array)], field="inputs").values()
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)


def test_bytes_survive() -> None:
    array = np.array([[b"a", b""], [b"\x00\xff", "ä".encode()]], dtype=object)
    (found,) = tensors_from_messages([tensor_to_message("x", array)], field="inputs").values()
    assert found.tolist() == array.tolist()


@pytest.mark.parametrize(
    ("message", "fault"),
    [
        ({"name": ""}, "must have a name"),
        ({"dtype": 99}, "dtype must be one of DataType, got 99"),
        ({"shape": [-1]}, "shape must have no negative size, got [-1]"),
        ({"shape": [2**20, 2**20]}, f"content must have {4 * 2**40} bytes"),
        ({"shape": [1] * 65}, "shape must have at most 32 dimensions, got 65"),
        ({"shape": [2**62, 0], "content": b""}, "shape must have at most"),
        (
            {"dtype": inference_pb2.DATA_TYPE_BOOL, "content": b"\2"},
            "content must have only bytes 0 and 1",
        ),
        ({"content": b"123"}, "content must have 4 bytes for FP32 of the shape [1], got 3"),
        ({"values": [b""]}, "must have content, not values"),
        ({"dtype": inference_pb2.DATA_TYPE_BYTES}, "must have values, not content"),
        (
            {"dtype": inference_pb2.DATA_TYPE_BYTES, "content": b"", "values": [b"", b""]},
            "must have 1 values for the shape [1], got 2",
        ),
    ],
)
def test_a_message_that_does_not_fit_its_shape_is_refused(
    message: dict[str, object], fault: str
) -> None:
    valid = {"name": "x", "dtype": inference_pb2.DATA_TYPE_FP32, "shape": [1], "content": bytes(4)}
    with pytest.raises(InvalidRequestError) as caught:
        tensors_from_messages([inference_pb2.Tensor(**{**valid, **message})], field="inputs")
    assert caught.value.violations[0].field == "inputs[0]"
    assert fault in caught.value.violations[0].description


def test_a_repeated_name_is_refused() -> None:
    message = tensor_to_message("x", np.zeros(1, np.float32))
    with pytest.raises(InvalidRequestError, match="repeats the name 'x'"):
        tensors_from_messages([message, message], field="inputs")
