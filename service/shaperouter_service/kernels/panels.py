"""Weights in the layout of the kernels: panels of some columns, each a piece of memory of its own.

A product of few rows reads each weight once, so it is as fast as memory, if what one thread reads
lies in a row, and what the processor multiplies at a time lies side by side.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from shaperouter_service.kernels.aligned import aligned

# Columns of a panel, inputs that bytes are multiplied by at a time, and inputs of a row that have a
# factor in common where it is rounded to bytes; of native/product.h.
PANEL_COLUMNS, QUAD, GROUP = 16, 4, 128

# Columns that are packed at a time: what they take besides the result stays small.
_SLAB = 64 * PANEL_COLUMNS

_MOST_INT8 = 127


@dataclass(frozen=True, kw_only=True)
class Panels:
    """A packed matrix.

    Attributes:
        values: [ceil(O / PANEL_COLUMNS), I, PANEL_COLUMNS]; int8 [ceil(O / PANEL_COLUMNS),
            ceil(I / QUAD), PANEL_COLUMNS, QUAD]; zeros in columns and inputs that there are not.
        scales: [O] float32, what columns are multiplied by; None where that is 1.
        shape: [I, O], of the matrix.
    """

    values: np.ndarray
    scales: np.ndarray | None
    shape: tuple[int, int]


def pack(matrix: np.ndarray, dtype: np.dtype[Any]) -> Panels:
    """Packs a matrix.

    Args:
        matrix: [I, O] float32; may be a view of another order.
        dtype: To hold it in: float32, bfloat16 or int8. The last is rounded to 255 steps for each
            column, the outermost of which is the column's largest value.
    """
    inputs, columns = matrix.shape
    is_quantized = dtype == np.int8
    count = math.ceil(columns / PANEL_COLUMNS)
    side_by_side = QUAD if is_quantized else 1  # inputs
    steps = math.ceil(inputs / side_by_side)
    values = aligned((count, steps, PANEL_COLUMNS, side_by_side), dtype)
    scales = aligned((columns,), np.dtype(np.float32)) if is_quantized else None
    for start in range(0, columns, _SLAB):
        slab = matrix[:, start : start + _SLAB]
        width = slab.shape[1]
        if scales is not None:
            scale = np.abs(slab).max(axis=0) / np.float32(_MOST_INT8)
            scales[start : start + width] = scale
            slab = np.rint(slab / np.where(scale > 0, scale, 1))
        panels = values[start // PANEL_COLUMNS :][: math.ceil(width / PANEL_COLUMNS)]
        filled_up = np.pad(
            slab, ((0, steps * side_by_side - inputs), (0, len(panels) * PANEL_COLUMNS - width))
        )
        panels[:] = filled_up.reshape(steps, side_by_side, len(panels), PANEL_COLUMNS).transpose(
            2, 0, 3, 1
        )
    if not is_quantized:
        values = values.reshape(-1, inputs, PANEL_COLUMNS)
    return Panels(values=values, scales=scales, shape=(inputs, columns))
