"""The data types of tensors."""

from enum import StrEnum
from typing import Any

import ml_dtypes
import numpy as np


class DType(StrEnum):
    """The data type of a tensor, by its name in the Open Inference Protocol."""

    BOOL = "BOOL"
    UINT8 = "UINT8"
    UINT16 = "UINT16"
    UINT32 = "UINT32"
    UINT64 = "UINT64"
    INT8 = "INT8"
    INT16 = "INT16"
    INT32 = "INT32"
    INT64 = "INT64"
    FP16 = "FP16"
    BF16 = "BF16"
    FP32 = "FP32"
    FP64 = "FP64"
    BYTES = "BYTES"

    @property
    def numpy(self) -> "np.dtype[Any]":
        """The type of arrays of this type; `object` for bytes."""
        return _TO_NUMPY[self]

    @classmethod
    def of(cls, array: "np.ndarray[Any, Any]") -> "DType":
        """The data type of an array.

        Raises:
            ValueError: Tensors have no such type.
        """
        return cls.from_numpy(array.dtype)

    @classmethod
    def from_numpy(cls, dtype: "np.dtype[Any]") -> "DType":
        """The data type of arrays of a type of NumPy.

        Raises:
            ValueError: Tensors have no such type.
        """
        try:
            return _FROM_NUMPY[np.dtype(dtype)]
        except KeyError:
            raise ValueError(f"tensors cannot be {dtype}") from None


_TO_NUMPY: dict[DType, "np.dtype[Any]"] = {
    DType.BOOL: np.dtype(np.bool_),
    DType.UINT8: np.dtype(np.uint8),
    DType.UINT16: np.dtype(np.uint16),
    DType.UINT32: np.dtype(np.uint32),
    DType.UINT64: np.dtype(np.uint64),
    DType.INT8: np.dtype(np.int8),
    DType.INT16: np.dtype(np.int16),
    DType.INT32: np.dtype(np.int32),
    DType.INT64: np.dtype(np.int64),
    DType.FP16: np.dtype(np.float16),
    DType.BF16: np.dtype(ml_dtypes.bfloat16),
    DType.FP32: np.dtype(np.float32),
    DType.FP64: np.dtype(np.float64),
    DType.BYTES: np.dtype(np.object_),
}
_FROM_NUMPY = {numpy: dtype for dtype, numpy in _TO_NUMPY.items()}
