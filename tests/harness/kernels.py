"""Helpers of the tests of native kernels."""

from collections.abc import Callable

import tensorflow as tf

# TensorFlow has no public name for the last one.
INT4 = tf.as_dtype("int4")
TYPES = (tf.float32, tf.bfloat16, tf.int8, INT4)


def compiled(function: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
    """Returns a function that XLA compiles at its first call."""
    return tf.function(function, jit_compile=True, autograph=False)
