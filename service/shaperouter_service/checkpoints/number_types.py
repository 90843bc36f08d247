"""The types that weights are stored in."""

from collections.abc import Mapping
from typing import Literal

DType = Literal["float32", "bfloat16", "int8", "int4"]

# Bytes of a number; those of four bits are with their scales.
NUMBER_BYTES: Mapping[DType, float] = {
    "float32": 4,
    "bfloat16": 2,
    "int8": 1,
    "int4": 0.5 + 2 / 32,
}
