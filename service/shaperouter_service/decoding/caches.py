"""Keys and values of a batch: variables on the device, of just the shape its graph has.

Graphs take them as resource handles and update them in place. Because a batch has the graph's very
rows and length, no graph ever reads a part of a cache, which XLA would copy at every step. When a
batch changes its shape it is copied, once.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from shaperouter_service.decoding.tf_internals import (
    assign_variable,
    new_variable,
    read_variable,
    variable_shape,
)
from shaperouter_service.models import Model


class Shape(NamedTuple):
    """What a batch has in common with the graph that runs it.

    Attributes:
        rows: R.
        length: T, positions for tokens.
        source_length: S, positions for the source; 0 without an encoder.
    """

    rows: int
    length: int
    source_length: int = 0


class Caches:
    """The caches of R rows: of tokens, and of sources if the model has an encoder.

    Only one thread may use them at a time.

    Attributes:
        tokens: Handles of stacks of layers' keys, then of their values: [R, L, H, T, D]. One stack
            has all layers if the model's weights are stacked; otherwise each layer has its own.
        source: Likewise, of what layers attend to of the source: [R, L, H, S, D].
        bytes: Memory they take.
    """

    def __init__(
        self, model: Model, shape: Shape, *, source: list[tf.Tensor] | None = None
    ) -> None:
        """Allocates zeros, except for caches of sources that are given."""
        self._model, self._shape = model, shape
        self.tokens = _zeros(token_shapes(model, shape), model.dtype)
        self.source = _zeros(source_shapes(model, shape), model.dtype) if source is None else source

    @property
    def shape(self) -> Shape:
        """Their current shape."""
        return self._shape

    @property
    def bytes(self) -> int:
        """Memory they take."""
        rows, length, source_length = self._shape
        return rows * (length + source_length) * self._model.kv_cache_bytes_per_token

    def reshape(self, kept: Sequence[int], shape: Shape) -> None:
        """Takes another shape.

        Args:
            kept: Which rows stay; they become the first, in this order.
            shape: The new one; what lies beyond it is lost.
        """
        rows, *lengths = self._shape
        self._shape = shape
        # Sources most often keep their shape, and are large.
        same_rows = shape.rows == rows and list(kept) == list(range(rows))
        caches = (self.tokens, shape.length), (self.source, shape.source_length)
        for (handles, length), old_length in zip(caches, lengths, strict=True):
            if handles and not (same_rows and length == old_length):
                _reshape(len(handles), self._model.dtype)(
                    tf.constant(list(kept), tf.int32),
                    tf.constant(shape.rows),
                    tf.constant(length),
                    *handles,
                )

    def copy_source(self, row: int) -> "Caches":
        """Copies the source of a row to caches of one row, with one position for tokens."""
        copied = Caches(self._model, Shape(1, 1, self._shape.source_length))
        copied.copy_row(0, self, row)
        return copied

    def give_source(self, row: int) -> "Caches":
        """Like `copy_source`, of a row that is used no more: the only one is not copied."""
        if self._shape.rows > 1:
            return self.copy_source(row)
        shape = Shape(1, 1, self._shape.source_length)
        return Caches(self._model, shape, source=self.source)

    def copy_row(self, row: int, other: "Caches", other_row: int) -> None:
        """Copies a row of other caches, as many of its positions as fit."""
        handles = [*self.tokens, *self.source]
        _copy_row(len(handles), self._model.dtype)(
            tf.constant(row), tf.constant(other_row), *handles, *other.tokens, *other.source
        )


def _zeros(shapes: Sequence[Sequence[int]], dtype: tf.DType) -> list[tf.Tensor]:
    """Handles of new variables, which live as long as these."""
    if not shapes:
        return []
    # Without Python's class around each: with it, those of 12 layers take 14 ms instead of 2.
    # Graphs are compiled for the shapes that they have, and `reshape` changes these.
    handles = [new_variable(dtype) for _ in shapes]
    _clear(len(handles), dtype)(tf.constant(shapes, tf.int32), *handles)
    return handles


def token_shapes(model: Model, shape: Shape) -> list[list[int]]:
    """Shapes of the caches of tokens, in the order of their handles."""
    return _shapes(model, shape.rows, shape.length)


def source_shapes(model: Model, shape: Shape) -> list[list[int]]:
    """Shapes of the caches of sources, in the order of their handles; none without an encoder."""
    if not model.family.max_source_length:
        return []
    return _shapes(model, shape.rows, shape.source_length)


def _shapes(model: Model, rows: int, length: int) -> list[list[int]]:
    family = model.family
    # Rows come first, so that a row is one piece of memory.
    in_stack, stacks = (family.layers, 1) if model.weights.is_packed else (1, family.layers)
    return [[rows, in_stack, family.heads, length, family.head_size]] * (2 * stacks)


def prepare(model: Model) -> None:
    """Makes what copies caches, which takes a second for many layers, before a request needs it."""
    shape = Shape(rows=1, length=1, source_length=min(1, model.family.max_source_length))
    caches = Caches(model, shape)
    caches.copy_row(0, caches, 0)
    # To another shape, or there would be nothing to do.
    caches.reshape([0], shape._replace(length=2))


# XLA compiles none of these: they fill and copy, with shapes that are known only when they run.


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
def _copy_row(caches: int, dtype: tf.DType) -> tf.types.experimental.ConcreteFunction:
    def copy_row(row: tf.Tensor, source_row: tf.Tensor, *handles: tf.Tensor) -> None:
        for handle, source in zip(handles[:caches], handles[caches:], strict=True):
            length = variable_shape(handle)[3]
            # [1, L, H, T, D]
            values = read_variable(source, dtype)[source_row : source_row + 1]
            values = values[:, :, :, :length]
            lacking = length - tf.shape(values)[3]
            # Of a whole row this is a copy of memory; assigning a part takes ten times as long.
            tf.raw_ops.ResourceScatterUpdate(
                resource=handle,
                indices=row[tf.newaxis],
                updates=tf.pad(values, [[0, 0], [0, 0], [0, 0], [0, lacking], [0, 0]]),
            )

    scalar = tf.TensorSpec([], tf.int32)
    return tf.function(copy_row, autograph=False).get_concrete_function(
        scalar, scalar, *_handle_specs(2 * caches)
    )


def _handle_specs(count: int) -> list[tf.TensorSpec]:
    return [tf.TensorSpec([], tf.resource)] * count


def read(
    handles: Sequence[tf.Tensor], model: Model, shapes: Sequence[Sequence[int]]
) -> list[tf.Tensor]:
    """In a graph: the caches' values, of static shapes."""
    return [
        tf.ensure_shape(read_variable(handle, model.dtype), shape)
        for handle, shape in zip(handles, shapes, strict=True)
    ]


def write(handles: Sequence[tf.Tensor], values: Sequence[tf.Tensor]) -> None:
    """In a graph: updates the caches."""
    for handle, value in zip(handles, values, strict=True):
        assign_variable(handle, value)
