"""Softmax over the vocabulary, and the sums that it is computed from."""

from typing import NamedTuple, Self

import tensorflow as tf

from shaperouter_service import kernels


class Softmax(NamedTuple):
    """The softmax of rows of numbers, as sums.

    Attributes:
        largest: [..., 1] float32, the largest number of each row.
        log_sum: [..., 1] float32, logarithm of the sum of the powers of e by the differences from
            `largest`. So the probability of the likeliest token is e to the power of minus this.
        entropy: [..., 1] float32, of the probabilities.
    """

    largest: tf.Tensor
    log_sum: tf.Tensor
    entropy: tf.Tensor

    @classmethod
    def of(cls, logits: tf.Tensor, *, is_native: bool) -> Self:
        """Computes the sums.

        Args:
            logits: [..., V] float32.
            is_native: Whether the native kernels compute them. XLA makes four loops of each sum
                over a vocabulary, and compiling them is a quarter of compiling a decode graph.
        """
        if is_native:
            sums = kernels.softmax_sums(tf.reshape(logits, [-1, logits.shape[-1]]))
            sums = tf.reshape(sums, [*logits.shape[:-1], sums.shape[1]])
            return cls(*tf.split(sums, len(cls._fields), axis=-1))
        largest = tf.reduce_max(logits, axis=-1, keepdims=True)
        powers = tf.exp(logits - largest)
        log_sum = tf.math.log(tf.reduce_sum(powers, axis=-1, keepdims=True))
        logprobs = logits - largest - log_sum
        surprise = tf.where(powers > 0, -logprobs * tf.exp(logprobs), 0.0)
        return cls(largest, log_sum, tf.reduce_sum(surprise, axis=-1, keepdims=True))

    def logprobs(self, logits: tf.Tensor) -> tf.Tensor:
        """The log-probabilities of the numbers that it was computed from: [..., V] float32."""
        return logits - self.largest - self.log_sum
