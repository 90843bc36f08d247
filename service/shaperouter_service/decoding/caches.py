"""Keys and values of a batch: variables on the device, of just the shape its graph has.

Graphs take them as resource handles and update them in place. Because a batch has the graph's very
rows and length, no graph ever reads a part of a cache, which XLA would copy at every step. When a
batch changes its shape it is copied, once.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.ops import gen_resource_variable_ops as resources

from shaperouter_service.models import Model


class Shape(NamedTuple):
    """What a batch has in common with the graph that runs it.

    Attributes:
        rows: R.
        length: T, places of the tape.
        source_length: S, places of the source; 0 without an encoder.
    """

    rows: int
    length: int
    source_length: int = 0


class Caches:
    """The caches of R rows: of tapes, and of sources if the model has an encoder.

    Only one thread may use them at a time.

    Attributes:
        tape: Handles of each layer's keys, then of each layer's values: [R, H, T, D].
        source: Likewise, of what each layer attends to of the source: [R, H, S, D].
        bytes: Memory they take.
    """

    def __init__(
        self, model: Model, shape: Shape, *, source: list[tf.Tensor] | None = None
    ) -> None:
        """Allocates them, as zeros, but for those of sources that there are already."""
        self._model, self._shape = model, shape
        self.tape = _zeros(tape_shapes(model, shape), model.dtype)
        self.source = _zeros(source_shapes(model, shape), model.dtype) if source is None else source

    @property
    def shape(self) -> Shape:
        """That they have now."""
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
        caches = (self.tape, shape.length), (self.source, shape.source_length)
        for (handles, length), old_length in zip(caches, lengths, strict=True):
            if handles and not (same_rows and length == old_length):
                _reshape(len(handles), self._model.dtype)(
                    tf.constant(list(kept), tf.int32),
                    tf.constant(shape.rows),
                    tf.constant(length),
                    *handles,
                )

    def copy_source(self, row: int) -> "Caches":
        """Copies the source of a row to caches of one row, with a tape of one place."""
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
        """Copies a row of other caches, as many of its places as fit."""
        handles = [*self.tape, *self.source]
        _copy_row(len(handles), self._model.dtype)(
            tf.constant(row), tf.constant(other_row), *handles, *other.tape, *other.source
        )


def _zeros(shapes: Sequence[Sequence[int]], dtype: tf.DType) -> list[tf.Tensor]:
    """Handles of new variables, which live as long as these."""
    if not shapes:
        return []
    # Without Python's class around each: with it, those of 12 layers take 14 ms instead of 2. Their
    # shape is unknown, for `reshape` to change; graphs are compiled for the shape they have.
    handles = [
        resources.var_handle_op(
            dtype=dtype, shape=tf.TensorShape(None), shared_name=context.anonymous_name()
        )
        for _ in shapes
    ]
    _clear(len(handles), dtype)(tf.constant(shapes, tf.int32), *handles)
    return handles


def tape_shapes(model: Model, shape: Shape) -> list[list[int]]:
    """Of the caches of tapes, in the order of their handles."""
    family = model.family
    return [[shape.rows, family.heads, shape.length, family.head_size]] * (2 * family.layers)


def source_shapes(model: Model, shape: Shape) -> list[list[int]]:
    """Of the caches of sources, in the order of their handles; none without an encoder."""
    family = model.family
    if not family.max_source_length:
        return []
    return [[shape.rows, family.heads, shape.source_length, family.head_size]] * (2 * family.layers)


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
            resources.assign_variable_op(handle, tf.zeros(shape, dtype))

    return tf.function(clear, autograph=False).get_concrete_function(
        tf.TensorSpec([caches, 4], tf.int32), *_handle_specs(caches)
    )


@functools.cache
def _reshape(caches: int, dtype: tf.DType) -> tf.types.experimental.ConcreteFunction:
    def reshape(kept: tf.Tensor, rows: tf.Tensor, length: tf.Tensor, *handles: tf.Tensor) -> None:
        for handle in handles:
            # [R, H, T, D]
            values = tf.gather(resources.read_variable_op(handle, dtype), kept)[:, :, :length]
            found = tf.shape(values)
            padding = [[0, rows - found[0]], [0, 0], [0, length - found[2]], [0, 0]]
            resources.assign_variable_op(handle, tf.pad(values, padding))

    scalar = tf.TensorSpec([], tf.int32)
    return tf.function(reshape, autograph=False).get_concrete_function(
        tf.TensorSpec([None], tf.int32), scalar, scalar, *_handle_specs(caches)
    )


@functools.cache
def _copy_row(caches: int, dtype: tf.DType) -> tf.types.experimental.ConcreteFunction:
    def copy_row(row: tf.Tensor, source_row: tf.Tensor, *handles: tf.Tensor) -> None:
        for handle, source in zip(handles[:caches], handles[caches:], strict=True):
            length = resources.variable_shape(handle)[2]
            # [1, H, T, D]
            values = resources.read_variable_op(source, dtype)[source_row : source_row + 1]
            values = values[:, :, :length]
            lacking = length - tf.shape(values)[2]
            # Of a whole row this is a copy of memory; assigning a part takes ten times as long.
            tf.raw_ops.ResourceScatterUpdate(
                resource=handle,
                indices=row[tf.newaxis],
                updates=tf.pad(values, [[0, 0], [0, 0], [0, lacking], [0, 0]]),
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
        tf.ensure_shape(resources.read_variable_op(handle, model.dtype), shape)
        for handle, shape in zip(handles, shapes, strict=True)
    ]


def write(handles: Sequence[tf.Tensor], values: Sequence[tf.Tensor]) -> None:
    """In a graph: updates the caches."""
    for handle, value in zip(handles, values, strict=True):
        resources.assign_variable_op(handle, value)
