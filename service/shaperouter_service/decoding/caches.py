"""Keys and values of a batch: variables on the device, of just the shape its graph has.

Graphs take them as resource handles and update them in place. Because a batch has the graph's very
rows and length, no graph ever reads a part of a cache, which XLA would copy at every step. When a
batch changes its shape it is copied, once.
"""

import functools
from collections.abc import Sequence

import tensorflow as tf
from tensorflow.python.ops import gen_resource_variable_ops as resources

from shaperouter_service.models import Model


class Caches:
    """The caches of R rows and T places; only one thread may use them at a time.

    Attributes:
        handles: Of each layer's keys, then of each layer's values: [R, H, T, D].
        bytes: Memory they take.
    """

    def __init__(self, model: Model, *, rows: int, length: int) -> None:
        """Allocates them, as zeros."""
        family, self._dtype = model.family, model.dtype
        self._bytes_per_place = model.kv_cache_bytes_per_token
        self._shape = [rows, family.heads, length, family.head_size]
        # Of unknown shape, for `reshape` to change; graphs are compiled for the shape it has.
        self._variables = [
            tf.Variable(
                tf.zeros(self._shape, self._dtype), shape=tf.TensorShape(None), trainable=False
            )
            for _ in range(2 * family.layers)
        ]
        self.handles = [variable.handle for variable in self._variables]

    @property
    def bytes(self) -> int:
        """Memory they take."""
        rows, _, length, _ = self._shape
        return rows * length * self._bytes_per_place

    def reshape(self, kept: Sequence[int], *, rows: int, length: int) -> None:
        """Takes other numbers of rows and places.

        Args:
            kept: Which rows stay; they become the first, in this order.
            rows: The new R.
            length: The new T; what lies beyond it is lost.
        """
        self._shape[0], self._shape[2] = rows, length
        _reshape(len(self.handles), self._dtype)(
            tf.constant(list(kept), tf.int32), tf.constant(rows), tf.constant(length), *self.handles
        )

    def copy_row(self, row: int, source: "Caches", source_row: int) -> None:
        """Copies a row of other caches, as many of its places as fit."""
        _copy_row(len(self.handles), self._dtype)(
            tf.constant(row), tf.constant(source_row), *self.handles, *source.handles
        )


def prepare(model: Model) -> None:
    """Makes what copies caches, which takes a second for many layers, before a request needs it."""
    caches = Caches(model, rows=1, length=1)
    caches.copy_row(0, caches, 0)
    caches.reshape([0], rows=1, length=1)


# Neither is compiled by XLA: they are copies, of shapes that are known only when they run.


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
            shape = resources.variable_shape(handle)
            values = resources.read_variable_op(source, dtype)[source_row : source_row + 1]
            values = values[:, :, : shape[2]]
            tf.raw_ops.ResourceStridedSliceAssign(
                ref=handle,
                begin=tf.stack([row, 0, 0, 0]),
                end=tf.stack([row + 1, shape[1], tf.shape(values)[2], shape[3]]),
                strides=[1, 1, 1, 1],
                value=values,
            )

    scalar = tf.TensorSpec([], tf.int32)
    return tf.function(copy_row, autograph=False).get_concrete_function(
        scalar, scalar, *_handle_specs(2 * caches)
    )


def _handle_specs(count: int) -> list[tf.TensorSpec]:
    return [tf.TensorSpec([], tf.resource)] * count


def read(handles: Sequence[tf.Tensor], model: Model, shape: Sequence[int]) -> list[tf.Tensor]:
    """In a graph: the caches' values, of a static shape."""
    return [
        tf.ensure_shape(resources.read_variable_op(handle, model.dtype), shape)
        for handle in handles
    ]


def write(handles: Sequence[tf.Tensor], values: Sequence[tf.Tensor]) -> None:
    """In a graph: updates the caches."""
    for handle, value in zip(handles, values, strict=True):
        resources.assign_variable_op(handle, value)
