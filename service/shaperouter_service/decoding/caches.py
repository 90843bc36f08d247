"""Keys and values of a batch: variables on the device, in exactly the shape of its graph.

Graphs take them as resource handles and update them in place. A batch has exactly the rows and the
length of its graph, so no graph reads a slice of a cache, which XLA would copy at every step. A
change of a batch's shape copies its caches once.

Caches in bfloat16 hold the bits of the numbers as integers: XLA's CPU backend would convert a whole
cache of bfloat16 to float32 for every update, and back.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from shaperouter_service.decoding.tf_internals import (
    assign_variable,
    describe_variable,
    new_variable,
    read_variable,
    variable_shape,
)
from shaperouter_service.models import NARROW_CACHES, Family, Model
from shaperouter_service.routing.prefixes import BLOCK


class Shape(NamedTuple):
    """Shape that a batch shares with the graph that runs it.

    Attributes:
        rows: R.
        length: T, positions for tokens.
        source_length: S, positions for the source; 0 without an encoder.
    """

    rows: int
    length: int
    source_length: int = 0


class Caches:
    """Caches of R rows: for tokens, and for sources if the model has an encoder.

    Only one thread may use them at a time.

    Attributes:
        tokens: Handles of stacks of layers' keys, then of their values: [R, L, H, T, D]. One stack
            has all layers if the model's weights are stacked; otherwise each layer has its own.
            Those of a draft model follow.
        source: Likewise, for keys and values of the source: [R, L, H, S, D].
        bytes: Size in memory.
    """

    def __init__(
        self, model: Model, shape: Shape, *, source: list[tf.Tensor] | None = None
    ) -> None:
        """Allocates zeros, except for the caches of sources if these are given."""
        self._model, self._shape = model, shape
        self.tokens = _zeros(token_shapes(model, shape), model.cache_dtype)
        if source is None:
            source = _zeros(source_shapes(model, shape), model.cache_dtype)
        self.source = source

    @property
    def shape(self) -> Shape:
        """Current shape."""
        return self._shape

    @property
    def bytes(self) -> int:
        """Size in memory."""
        rows, length, source_length = self._shape
        return rows * (length + source_length) * self.bytes_per_token

    @property
    def bytes_per_token(self) -> int:
        """Size of a position in memory."""
        return self._model.kv_cache_bytes_per_token

    def reshape(self, kept: Sequence[int], shape: Shape) -> None:
        """Changes the shape.

        Args:
            kept: Rows to keep; they become the first, in this order.
            shape: The new shape; positions beyond it are lost.
        """
        rows, *lengths = self._shape
        self._shape = shape
        # Caches of sources are large, and usually keep their shape.
        same_rows = shape.rows == rows and list(kept) == list(range(rows))
        caches = (self.tokens, shape.length), (self.source, shape.source_length)
        for (handles, length), old_length in zip(caches, lengths, strict=True):
            if handles and not (same_rows and length == old_length):
                _reshape(len(handles), self._model.cache_dtype)(
                    tf.constant(list(kept), tf.int32),
                    tf.constant(shape.rows),
                    tf.constant(length),
                    *handles,
                )

    def copy_source(self, row: int) -> "Caches":
        """Copies the source of a row to new caches of one row, with one position for tokens."""
        copied = Caches(self._model, Shape(1, 1, self._shape.source_length))
        copied.copy_row(0, self, row)
        return copied

    def give_source(self, row: int) -> "Caches":
        """Like `copy_source`, for a row that is no longer used: a sole row is moved, not copied."""
        if self._shape.rows > 1:
            return self.copy_source(row)
        shape = Shape(1, 1, self._shape.source_length)
        return Caches(self._model, shape, source=self.source)

    def copy_row(self, row: int, other: "Caches", other_row: int) -> None:
        """Copies a row from other caches, as many of its positions as fit."""
        handles = [*self.tokens, *self.source]
        _copy_row(len(handles), self._model.cache_dtype, from_several=other.shape.rows > 1)(
            tf.constant(row), tf.constant(other_row), *handles, *other.tokens, *other.source
        )

    def copy_blocks(
        self, row: int, starts: Sequence[int], length: int
    ) -> list[Sequence[tf.Tensor]]:
        """Copies positions of tokens of a row.

        Args:
            row: The row.
            starts: First positions of the blocks.
            length: Number of positions of each block.

        Returns:
            For each block a tensor [1, L, H, length, D] of each cache.
        """
        stacks = [(shape[1], shape[2]) for shape in token_shapes(self._model, self._shape)]
        # Keys and values of a model have the same places.
        kinds = [*dict.fromkeys(stacks)]
        indices = tuple(map(kinds.index, stacks))
        blocks: list[Sequence[tf.Tensor]] = []
        while len(blocks) < len(starts):
            group = starts[len(blocks) :][: _blocks_at_once(len(starts) - len(blocks), len(stacks))]
            copied = _copy_blocks(indices, len(group), self._model.cache_dtype)(
                *self.tokens,
                *(_places(row, *kind, start, length) for start in group for kind in kinds),
            )
            blocks += [copied[at : at + len(stacks)] for at in range(0, len(copied), len(stacks))]
        return blocks

    def load_blocks(self, row: int, blocks: Sequence[Sequence[tf.Tensor]]) -> None:
        """Overwrites the positions of tokens of a row: with blocks from the first on, then zeros.

        Args:
            row: The row.
            blocks: What `copy_blocks` returned for positions that follow each other, as many as
                fit; all of one length.
        """
        rows, length, _ = self._shape
        for handle, parts in zip(self.tokens, zip(*blocks, strict=True), strict=True):
            # Eager, because the number of blocks is part of a trace.
            first = parts[0].shape
            # All blocks have one length. Asking each for its own takes longer than joining them.
            rest = length - len(parts) * first[3]
            zeros = tf.zeros([1, first[1], first[2], rest, first[4]], self._model.cache_dtype)
            values = tf.concat([*parts, zeros], axis=3)
            if rows == 1:
                # The variable takes the tensor over, without a copy.
                assign_variable(handle, values)
            else:
                tf.raw_ops.ResourceScatterUpdate(
                    resource=handle, indices=tf.constant([row]), updates=values
                )


def _blocks_at_once(blocks: int, caches: int) -> int:
    """How many of some blocks one call copies: a power of two, with at most 16 copies if it can.

    A copy of a block is short, and waking threads for it takes as long. Copies of one call share
    that time; beyond 16, tracing the call takes longer than it saves.
    """
    return 1 << (max(1, min(blocks, 16 // caches)).bit_length() - 1)


def _places(row: int, layers: int, heads: int, start: int, length: int) -> tf.Tensor:
    """The indices of some positions of a row in all layers and heads: [1, L, H, length, 4]."""
    first = np.array([row, 0, 0, start], np.int32)
    return tf.constant(_first_places(layers, heads, length) + first)


@functools.cache
def _first_places(layers: int, heads: int, length: int) -> np.ndarray:
    """The indices of the first positions of the first row; making them takes longer than a copy."""
    axes = np.ix_([0], range(layers), range(heads), range(length))
    return np.stack(np.broadcast_arrays(*axes), axis=-1).astype(np.int32)


def _zeros(shapes: Sequence[Sequence[int]], dtype: tf.DType) -> list[tf.Tensor]:
    """Returns handles of new variables; a variable lives as long as its handle."""
    if not shapes:
        return []
    # `tf.Variable` objects around the handles would take 14 ms for 12 layers, instead of 2 ms.
    # Graphs are compiled for the variables' current shapes, which `reshape` changes.
    handles = [new_variable(dtype) for _ in shapes]
    _clear(len(handles), dtype)(tf.constant(shapes, tf.int32), *handles)
    return handles


def token_shapes(model: Model, shape: Shape) -> list[list[int]]:
    """Shapes of the caches of tokens, in the order of their handles: first the model's own."""
    return [
        each for family in model.cached for each in _shapes(model, family, shape.rows, shape.length)
    ]


def split(model: Model, values: list[tf.Tensor]) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """Splits the caches of tokens in those of the model and those of its draft model."""
    own = len(values) // len(model.cached)
    return values[:own], values[own:]


def source_shapes(model: Model, shape: Shape) -> list[list[int]]:
    """Shapes of the caches of sources, in the order of their handles; none without an encoder."""
    if not model.family.max_source_length:
        return []
    return _shapes(model, model.family, shape.rows, shape.source_length)


def _shapes(model: Model, family: Family, rows: int, length: int) -> list[list[int]]:
    # Rows come first, so that a row is contiguous in memory.
    in_stack, stacks = (family.layers, 1) if model.weights.is_packed else (1, family.layers)
    return [[rows, in_stack, family.heads, length, family.head_size]] * (2 * stacks)


def prepare(model: Model) -> None:
    """Builds the functions that copy caches ahead of need: a second for many layers."""
    shape = Shape(rows=1, length=1, source_length=min(1, model.family.max_source_length))
    caches = Caches(model, shape)
    caches.copy_row(0, caches, 0)
    caches.copy_row(0, Caches(model, shape._replace(rows=2)), 0)
    # A change to the same shape would do nothing.
    caches.reshape([0], shape._replace(length=BLOCK))


# XLA compiles none of these: they fill and copy, with shapes known only at run time.
#
# Once rows have been written into a variable in place, TensorFlow copies all of it whenever an
# operation reads it as a tensor. So parts of several rows are gathered from the variable itself.


@functools.cache
def _clear(caches: int, dtype: tf.DType) -> tf.types.experimental.ConcreteFunction:
    def clear(shapes: tf.Tensor, *handles: tf.Tensor) -> None:
        for shape, handle in zip(tf.unstack(shapes), handles, strict=True):
            assign_variable(handle, tf.zeros(shape, dtype))

    return tf.function(clear, autograph=False).get_concrete_function(
        tf.TensorSpec([caches, 5], tf.int32), *_handle_specs(caches)
    )


@functools.cache
def _reshape(caches: int, dtype: tf.DType) -> tf.types.experimental.ConcreteFunction:
    def reshape(kept: tf.Tensor, rows: tf.Tensor, length: tf.Tensor, *handles: tf.Tensor) -> None:
        for handle in handles:
            # [R, L, H, T, D]
            values = tf.gather(read_variable(handle, dtype), kept)[:, :, :, :length]
            found = tf.shape(values)
            padding = [[0, rows - found[0]], [0, 0], [0, 0], [0, length - found[3]], [0, 0]]
            assign_variable(handle, tf.pad(values, padding))

    scalar = tf.TensorSpec([], tf.int32)
    return tf.function(reshape, autograph=False).get_concrete_function(
        tf.TensorSpec([None], tf.int32), scalar, scalar, *_handle_specs(caches)
    )


@functools.cache
def _copy_row(
    caches: int, dtype: tf.DType, *, from_several: bool
) -> tf.types.experimental.ConcreteFunction:
    def copy_row(row: tf.Tensor, source_row: tf.Tensor, *handles: tf.Tensor) -> None:
        for handle, source in zip(handles[:caches], handles[caches:], strict=True):
            length = variable_shape(handle)[3]
            # [1, L, H, T, D]; a sole row is read where it is.
            if from_several:
                values = tf.raw_ops.ResourceGather(
                    resource=source, indices=source_row[tf.newaxis], dtype=dtype
                )
            else:
                values = read_variable(source, dtype)
            values = values[:, :, :, :length]
            lacking = length - tf.shape(values)[3]
            # A whole row is one copy of memory; assigning part of it takes ten times as long.
            tf.raw_ops.ResourceScatterUpdate(
                resource=handle,
                indices=row[tf.newaxis],
                updates=tf.pad(values, [[0, 0], [0, 0], [0, 0], [0, lacking], [0, 0]]),
            )

    scalar = tf.TensorSpec([], tf.int32)
    return tf.function(copy_row, autograph=False).get_concrete_function(
        scalar, scalar, *_handle_specs(2 * caches)
    )


@functools.cache
def _copy_blocks(
    kinds: Sequence[int], blocks: int, dtype: tf.DType
) -> tf.types.experimental.ConcreteFunction:
    """Copies of blocks of all caches, which run at the same time.

    Args:
        kinds: For each cache, the index of its places among those of a block.
        blocks: Number of blocks.
        dtype: Type of the caches.
    """
    caches, places = len(kinds), max(kinds) + 1

    def copy_blocks(*inputs: tf.Tensor) -> list[tf.Tensor]:
        handles, found = inputs[:caches], inputs[caches:]
        for handle in handles:
            describe_variable(handle, dtype, rank=5)
        return [
            tf.raw_ops.ResourceGatherNd(
                resource=handle, indices=found[block * places + kind], dtype=dtype
            )
            for block in range(blocks)
            for handle, kind in zip(handles, kinds, strict=True)
        ]

    indices = [tf.TensorSpec([1, None, None, None, 4], tf.int32)] * (blocks * places)
    return tf.function(copy_blocks, autograph=False).get_concrete_function(
        *_handle_specs(caches), *indices
    )


def _handle_specs(count: int) -> list[tf.TensorSpec]:
    return [tf.TensorSpec([], tf.resource)] * count


def narrowed(numbers: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """In a graph: converts computed keys or values to a cache's type."""
    if dtype == NARROW_CACHES:
        return tf.bitcast(tf.cast(numbers, tf.bfloat16), NARROW_CACHES)
    return tf.cast(numbers, dtype)


def widened(cached: tf.Tensor) -> tf.Tensor:
    """In a graph: converts part of a cache to numbers to compute with; copies."""
    if cached.dtype == NARROW_CACHES:
        return tf.cast(tf.bitcast(cached, tf.bfloat16), tf.float32)
    return cached


def read(
    handles: Sequence[tf.Tensor], model: Model, shapes: Sequence[Sequence[int]]
) -> list[tf.Tensor]:
    """In a graph: reads the caches' values, with static shapes."""
    return [
        tf.ensure_shape(read_variable(handle, model.cache_dtype), shape)
        for handle, shape in zip(handles, shapes, strict=True)
    ]


def write(handles: Sequence[tf.Tensor], values: Sequence[tf.Tensor]) -> None:
    """In a graph: updates the caches."""
    for handle, value in zip(handles, values, strict=True):
        assign_variable(handle, value)
