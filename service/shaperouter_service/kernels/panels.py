"""Weights in the layout of the kernels: panels of some columns, each one piece of memory.

A product of few rows reads each weight once, so it is as fast as memory, if what one thread reads
is contiguous, and what the processor multiplies at a time lies side by side.
"""

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from shaperouter_service.kernels.aligned import aligned

# Columns of a panel, inputs that bytes are multiplied by at a time, and inputs of a row that have a
# factor in common where it is rounded to bytes; of native/product.h.
PANEL_COLUMNS, QUAD, GROUP = 16, 4, 128

# Columns that are packed at a time: what they take besides the result stays small.
_SLAB = 64 * PANEL_COLUMNS

_MAX_INT8 = 127


@dataclass(frozen=True, kw_only=True)
class Panels:
    """A packed matrix, or a stack of L packed matrices of one shape.

    Attributes:
        values: [ceil(O / PANEL_COLUMNS), I, PANEL_COLUMNS]; int8 [ceil(O / PANEL_COLUMNS),
            ceil(I / QUAD), PANEL_COLUMNS, QUAD]; zeros fill up columns and inputs. A stack has
            another axis before these, as in all that follows: L.
        scales: [O] float32, factors of the columns; None where they are 1.
        shape: [I, O], of a matrix.
    """

    values: np.ndarray
    scales: np.ndarray | None
    shape: tuple[int, int]

    @classmethod
    def empty(cls, shape: tuple[int, int], dtype: np.dtype[Any], layers: int | None = None) -> Self:
        """Memory for a matrix of a shape, or for a stack of as many, that nothing was written to.

        Args:
            shape: [I, O].
            dtype: To hold values in: float32, bfloat16 or int8.
            layers: L; None for one matrix.
        """
        inputs, columns = shape
        stack = () if layers is None else (layers,)
        count = math.ceil(columns / PANEL_COLUMNS)
        if dtype != np.int8:
            values = aligned((*stack, count, inputs, PANEL_COLUMNS), dtype)
            return cls(values=values, scales=None, shape=shape)
        values = aligned((*stack, count, math.ceil(inputs / QUAD), PANEL_COLUMNS, QUAD), dtype)
        scales = aligned((*stack, columns), np.dtype(np.float32))
        return cls(values=values, scales=scales, shape=shape)

    def layer(self, index: int) -> Self:
        """One matrix of a stack, in the same memory."""
        scales = None if self.scales is None else self.scales[index]
        return type(self)(values=self.values[index], scales=scales, shape=self.shape)

    def fill(self, matrix: np.ndarray) -> None:
        """Packs a matrix into this memory.

        Args:
            matrix: [I, O] float32; may be a view of another order. For int8, each column is rounded
                to 255 steps, the outermost of which is the column's largest value.
        """
        inputs, columns = self.shape
        steps = self.values.shape[1]
        side_by_side = math.prod(self.values.shape[3:])  # inputs
        for start in range(0, columns, _SLAB):
            slab = matrix[:, start : start + _SLAB]
            width = slab.shape[1]
            if self.scales is not None:
                scale = np.abs(slab).max(axis=0) / np.float32(_MAX_INT8)
                self.scales[start : start + width] = scale
                slab = np.rint(slab / np.where(scale > 0, scale, 1))
            panels = self.values[start // PANEL_COLUMNS :][: math.ceil(width / PANEL_COLUMNS)]
            filled_up = np.pad(
                slab, ((0, steps * side_by_side - inputs), (0, len(panels) * PANEL_COLUMNS - width))
            )
            ordered = filled_up.reshape(steps, side_by_side, len(panels), PANEL_COLUMNS)
            panels[:] = ordered.transpose(2, 0, 3, 1).reshape(panels.shape)


def pack(matrix: np.ndarray, dtype: np.dtype[Any]) -> Panels:
    """Packs one matrix, [I, O] float32; see `Panels`."""
    inputs, columns = matrix.shape
    panels = Panels.empty((inputs, columns), dtype)
    panels.fill(matrix)
    return panels
