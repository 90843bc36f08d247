"""What tests of the native kernels share."""

from collections.abc import Callable

import tensorflow as tf

TYPES = (tf.float32, tf.bfloat16, tf.int8)


def compiled(function: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
    """Returns a function that XLA compiles at its first call."""
    return tf.function(function, jit_compile=True, autograph=False)
