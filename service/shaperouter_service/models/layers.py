"""Layers that families share, as pure functions."""

from collections.abc import Callable
from typing import Protocol

import tensorflow as tf

# Named after Transformers' `hidden_act` / `activation_function` values.
ACTIVATIONS: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "gelu": lambda x: tf.nn.gelu(x, approximate=False),
    "gelu_fast": lambda x: tf.nn.gelu(x, approximate=True),
    "gelu_new": lambda x: tf.nn.gelu(x, approximate=True),
    "gelu_pytorch_tanh": lambda x: tf.nn.gelu(x, approximate=True),
    "relu": tf.nn.relu,
    "silu": tf.nn.silu,
    "swish": tf.nn.silu,
    "tanh": tf.math.tanh,
}


class Attend(Protocol):
    """Attention over whatever the caller keeps: a family does not know about caches.

    `decoding` passes one that writes a prompt's keys and values into a slot, and one that appends a
    token to every slot and attends to all that came before.
    """

    def __call__(
        self, layer: int, query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, scale: float
    ) -> tf.Tensor:
        """Keeps the keys and values of one layer and attends.

        Args:
            layer: Index of the layer.
            query: [R, H, P, D].
            key: [R, H, P, D].
            value: [R, H, P, D].
            scale: Factor of the scores.

        Returns:
            [R, H, P, D].
        """


def layer_norm(x: tf.Tensor, gain: tf.Tensor, bias: tf.Tensor, epsilon: float) -> tf.Tensor:
    """Normalizes the last axis (Ba et al. 2016)."""
    mean = tf.reduce_mean(x, axis=-1, keepdims=True)
    variance = tf.reduce_mean(tf.math.squared_difference(x, mean), axis=-1, keepdims=True)
    return (x - mean) * tf.math.rsqrt(variance + epsilon) * gain + bias


def linear(x: tf.Tensor, weight: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """Multiplies the last axis: [..., I] by a weight of [I, O] plus a bias of [O]."""
    return tf.einsum("...i,io->...o", x, weight) + bias


def attention(
    query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, visible: tf.Tensor, scale: float
) -> tf.Tensor:
    """Scaled dot-product attention (Vaswani et al. 2017).

    Args:
        query: [R, H, P, D].
        key: [R, H, T, D].
        value: [R, H, T, D].
        visible: Boolean, broadcastable to [R, H, P, T]: which keys a query sees; at least one.
        scale: Factor of the scores.

    Returns:
        [R, H, P, D]. Invisible keys weigh exactly zero, so padding never changes an answer.
    """
    scores = tf.einsum("rhpd,rhtd->rhpt", query, key) * tf.cast(scale, query.dtype)
    scores = tf.where(visible, scores, scores.dtype.min)
    return tf.einsum("rhpt,rhtd->rhpd", tf.nn.softmax(scores), value)


def split_heads(x: tf.Tensor, heads: int) -> tf.Tensor:
    """[R, P, E] to [R, H, P, D]."""
    rows, length, width = x.shape
    return tf.transpose(tf.reshape(x, [rows, length, heads, width // heads]), [0, 2, 1, 3])


def merge_heads(x: tf.Tensor) -> tf.Tensor:
    """[R, H, P, D] to [R, P, E]."""
    rows, heads, length, size = x.shape
    return tf.reshape(tf.transpose(x, [0, 2, 1, 3]), [rows, length, heads * size])
