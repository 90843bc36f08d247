"""Tensors as NumPy arrays, and their messages.

NumPy is needed only here. It comes with ``pip install 'shaperouter[numpy]'``, so that clients of
generations install without it.
"""

import sys
from typing import TYPE_CHECKING, Any

from shaperouter import _values
from shaperouter._errors import InternalError, InvalidArgumentError
from shaperouter._model import DataType
from shaperouter.v1 import inference_pb2

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

# NumPy's names of the types that need no conversion.
_NAMES = {
    "bool": inference_pb2.DATA_TYPE_BOOL,
    "uint8": inference_pb2.DATA_TYPE_UINT8,
    "uint16": inference_pb2.DATA_TYPE_UINT16,
    "uint32": inference_pb2.DATA_TYPE_UINT32,
    "uint64": inference_pb2.DATA_TYPE_UINT64,
    "int8": inference_pb2.DATA_TYPE_INT8,
    "int16": inference_pb2.DATA_TYPE_INT16,
    "int32": inference_pb2.DATA_TYPE_INT32,
    "int64": inference_pb2.DATA_TYPE_INT64,
    "float16": inference_pb2.DATA_TYPE_FP16,
    # The type of ml_dtypes, which JAX and TensorFlow use.
    "bfloat16": inference_pb2.DATA_TYPE_BF16,
    "float32": inference_pb2.DATA_TYPE_FP32,
    "float64": inference_pb2.DATA_TYPE_FP64,
}
_TYPES = {number: name for name, number in _NAMES.items() if name != "bfloat16"}


def numpy() -> Any:
    """The module numpy.

    Raises:
        ImportError: It is not installed; the text says how to install it.
    """
    try:
        import numpy as np  # noqa: PLC0415 (an extra)
    except ImportError as error:
        raise ImportError("infer needs NumPy: pip install 'shaperouter[numpy]'") from error
    return np


def dtype_of(dtype: DataType) -> "np.dtype[Any]":
    """NumPy's type of a tensor's numbers; BF16 is given as float32.

    Raises:
        KeyError: They are not numbers.
    """
    names = {inference_pb2.DataType.Name(number): name for number, name in _TYPES.items()}
    name = "float32" if dtype is DataType.BF16 else names[f"DATA_TYPE_{dtype}"]
    found: np.dtype[Any] = numpy().dtype(name)
    return found


def tensor_message(name: str, value: "npt.ArrayLike") -> inference_pb2.Tensor:
    """The message of a tensor.

    Args:
        name: Name of the input.
        value: An array, or what NumPy makes one of. Texts and bytes are sent as BYTES.

    Raises:
        InvalidArgumentError: The value is not an array of numbers, texts or bytes.
    """
    np, field = numpy(), f"inputs.{name}"
    try:
        array = np.asarray(value)
        if array.dtype.kind in "SU" and not isinstance(value, np.ndarray):
            # NumPy's texts lose NULs at their end, and what stands beside a text becomes one.
            array = np.asarray(value, dtype=object)
    except ValueError as error:
        raise InvalidArgumentError.of(field, f"must be an array: {error}") from None
    message = inference_pb2.Tensor(name=_values.text("inputs", name), shape=array.shape)
    if array.dtype.kind in "OSU":
        message.dtype = inference_pb2.DATA_TYPE_BYTES
        message.values.extend(_bytes(field, each) for each in array.ravel().tolist())
        return message
    if array.dtype.name not in _NAMES:
        raise InvalidArgumentError.of(field, f"must not have the data type {array.dtype}")
    message.dtype = _NAMES[array.dtype.name]
    message.content = _little_endian(array).tobytes()
    return message


def array(message: inference_pb2.Tensor) -> "np.ndarray[Any, Any]":
    """The array of a message. BF16 becomes float32, which has all of its values.

    Raises:
        InternalError: The message is not a tensor.
    """
    found: np.ndarray[Any, Any] = _flat(message).reshape(tuple(message.shape))
    return found


def _flat(message: inference_pb2.Tensor) -> Any:
    np = numpy()
    found: Any
    if message.dtype == inference_pb2.DATA_TYPE_BYTES:
        found = np.empty(len(message.values), dtype=object)
        found[:] = message.values
    elif message.dtype == inference_pb2.DATA_TYPE_BF16:
        halves = _little_endian(np.frombuffer(message.content, dtype=np.uint16))
        found = (halves.astype(np.uint32) << 16).view(np.float32)
    elif message.dtype in _TYPES:
        found = _little_endian(np.frombuffer(message.content, dtype=_TYPES[message.dtype]))
    else:
        raise InternalError(f"the service sent {message.name} with the data type {message.dtype}")
    return found


def _bytes(field: str, value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    return _values.text(field, value).encode()


def _little_endian(array: Any) -> Any:
    """The array, with swapped bytes on a big-endian machine."""
    foreign = array.dtype.byteorder == ">" or (
        array.dtype.byteorder == "=" and sys.byteorder == "big"
    )
    return array.byteswap() if foreign else array
