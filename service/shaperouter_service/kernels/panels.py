"""Weights in the layout of the kernels: panels of 16 columns, each contiguous in memory.

A product of few rows reads each weight once. It runs at the speed of memory if each thread reads
contiguous memory, and if the weights that the processor multiplies at a time are adjacent.
"""

import math
from dataclasses import dataclass
from typing import Any, Self

import ml_dtypes
import numpy as np

from shaperouter_service.kernels.aligned import aligned
from shaperouter_service.system.populated_memory import PopulatedMemory

# Columns of a panel, inputs of one product of bfloat16 and of bytes, and inputs of a row that share
# a factor when the row is rounded to bytes; the same as in native/product.h.
PANEL_COLUMNS, PAIR, QUAD, GROUP = 16, 2, 4, 128
# For weights of four bits, as in native/product.h: inputs of a column that share a scale, inputs of
# a block, and lines of 64 bytes in a block. The first line has the scales.
SCALED, BLOCK, BLOCK_LINES = 32, 64, 9
LINE = PANEL_COLUMNS * QUAD

# Columns that are packed at a time, to keep temporary memory small.
_SLAB = 64 * PANEL_COLUMNS

_MAX_INT8 = 127
_MIN_INT4, _MAX_INT4 = -8, 7
INT4 = np.dtype(ml_dtypes.int4)


@dataclass(frozen=True, kw_only=True)
class Panels:
    """A packed matrix, or a stack of L packed matrices of one shape.

    Attributes:
        values: float32 [ceil(O / PANEL_COLUMNS), I, PANEL_COLUMNS]; bfloat16 [ceil(O /
            PANEL_COLUMNS), ceil(I / PAIR), PANEL_COLUMNS, PAIR]; int8 likewise, with QUAD; for four
            bits, uint8 [ceil(O / PANEL_COLUMNS), ceil(I / BLOCK), BLOCK_LINES, LINE], see
            native/product.h. Columns and inputs are padded with zeros. In a stack, an axis L
            precedes these axes, and those of `scales`.
        scales: [O] float32, factors of the columns; None where they are 1, and for four bits, whose
            blocks have their own.
        shape: [I, O], the shape of one matrix.
    """

    values: np.ndarray
    scales: np.ndarray | None
    shape: tuple[int, int]

    @classmethod
    def empty(
        cls,
        shape: tuple[int, int],
        dtype: np.dtype[Any],
        layers: int | None = None,
        memory: PopulatedMemory | None = None,
    ) -> Self:
        """Allocates uninitialized memory for a packed matrix, or for a stack of packed matrices.

        Args:
            shape: [I, O].
            dtype: Type of the weights: float32, bfloat16, int8 or `INT4`.
            layers: L, the number of matrices in the stack; None for one matrix.
            memory: See `aligned`.
        """
        inputs, columns = shape
        stack = () if layers is None else (layers,)
        count = math.ceil(columns / PANEL_COLUMNS)
        if dtype == INT4:
            blocks = math.ceil(inputs / BLOCK)
            values = aligned((*stack, count, blocks, BLOCK_LINES, LINE), np.dtype(np.uint8), memory)
            return cls(values=values, scales=None, shape=shape)
        if dtype == np.float32:
            values = aligned((*stack, count, inputs, PANEL_COLUMNS), dtype, memory)
            return cls(values=values, scales=None, shape=shape)
        side_by_side = QUAD if dtype == np.int8 else PAIR
        steps = math.ceil(inputs / side_by_side)
        values = aligned((*stack, count, steps, PANEL_COLUMNS, side_by_side), dtype, memory)
        if dtype != np.int8:
            return cls(values=values, scales=None, shape=shape)
        scales = aligned((*stack, columns), np.dtype(np.float32), memory)
        return cls(values=values, scales=scales, shape=shape)

    def layer(self, index: int) -> Self:
        """Returns one matrix of a stack, which shares the memory of the stack."""
        scales = None if self.scales is None else self.scales[index]
        return type(self)(values=self.values[index], scales=scales, shape=self.shape)

    def fill(self, matrix: np.ndarray) -> None:
        """Packs a matrix into this memory.

        Args:
            matrix: [I, O] float32, in any memory order. For int8, each column is rounded to 255
                steps, from minus to plus its largest absolute value. For four bits, each SCALED
                inputs of a column are rounded to 16 steps, the last of which is the number with the
                largest absolute value.
        """
        if self.values.dtype == np.uint8:
            self._fill_blocks(matrix)
            return
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

    def _fill_blocks(self, matrix: np.ndarray) -> None:
        inputs, columns = self.shape
        blocks = self.values.shape[1]
        for start in range(0, columns, _SLAB):
            slab = matrix[:, start : start + _SLAB]
            width = slab.shape[1]
            panels = self.values[start // PANEL_COLUMNS :][: math.ceil(width / PANEL_COLUMNS)]
            filled_up = np.pad(
                slab, ((0, blocks * BLOCK - inputs), (0, len(panels) * PANEL_COLUMNS - width))
            )
            groups = filled_up.reshape(-1, SCALED, filled_up.shape[1])
            low, high = groups.min(axis=1), groups.max(axis=1)
            peak = np.where(-low > high, low, high)
            # Weights are rounded to steps of the scale that is kept, so its own rounding costs
            # little.
            scale = (peak / _MIN_INT4).astype(ml_dtypes.bfloat16)
            steps = scale.astype(np.float32)[:, np.newaxis]
            rounded = np.rint(groups / np.where(steps == 0, 1, steps))
            numbers = (np.clip(rounded, _MIN_INT4, _MAX_INT4) - _MIN_INT4).astype(np.uint8)
            quads = numbers.reshape(blocks, -1, 2, QUAD, len(panels), PANEL_COLUMNS)
            # Two quads side by side in each byte: [panels, blocks, lines, columns, inputs].
            pairs = (quads[:, :, 0] | quads[:, :, 1] << 4).transpose(3, 0, 1, 4, 2)
            panels[:, :, 1:] = pairs.reshape(len(panels), blocks, BLOCK_LINES - 1, LINE)
            scales = scale.reshape(blocks, -1, len(panels), PANEL_COLUMNS).transpose(2, 0, 1, 3)
            lines = np.ascontiguousarray(scales).view(np.uint8)
            panels[:, :, 0] = lines.reshape(len(panels), blocks, LINE)


def pack(matrix: np.ndarray, dtype: np.dtype[Any]) -> Panels:
    """Packs one matrix, [I, O] float32; see `Panels`."""
    inputs, columns = matrix.shape
    panels = Panels.empty((inputs, columns), dtype)
    panels.fill(matrix)
    return panels
