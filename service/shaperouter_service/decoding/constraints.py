"""Constraints: the tokens that may follow in a text that must have a given structure.

They are data of one step, computed on the host by `worker.constraints`, so no schema or grammar
ever compiles a graph.
"""

import math
from typing import Any, NamedTuple

import tensorflow as tf

from shaperouter_service.decoding.hypotheses import per_hypothesis
from shaperouter_service.decoding.softmax import Softmax


class Constraints(NamedTuple):
    """What may follow in R rows.

    Attributes:
        applies: [R] bool, which rows have a constraint.
        allowed: [R, B, ceil(V / 8)] uint8, a bit for each token, lowest first: whether it may
            follow that hypothesis; ignored in the other rows.
    """

    applies: Any
    allowed: Any

    @classmethod
    def specs(cls, rows: int, beams: int, vocab_size: int) -> "Constraints":
        """Static shapes."""
        return cls(
            applies=tf.TensorSpec([rows], tf.bool),
            allowed=tf.TensorSpec([rows, beams, math.ceil(vocab_size / 8)], tf.uint8),
        )

    def per_hypothesis(self) -> "Constraints":
        """The constraints of R * B hypotheses: [R * B] and [R * B, ceil(V / 8)]."""
        _, beams, size = self.allowed.shape
        return Constraints(
            per_hypothesis(self.applies, beams), tf.reshape(self.allowed, [-1, size])
        )


def constrain(
    scores: tf.Tensor,
    unprocessed: tf.Tensor,
    constraints: Constraints,
    active: tf.Tensor,
    *,
    is_native: bool,
) -> tf.Tensor:
    """Rules out tokens that may not follow.

    A constraint is stronger than bans: if they leave none of its tokens, the tokens have the scores
    that they had before.

    Args:
        scores: [R, V] float32.
        unprocessed: [R, V] float32, the scores before penalties and bans.
        constraints: Constraints of R rows, one hypothesis each.
        active: [R] bool; if no active row has a constraint, nothing is computed.
        is_native: Whether the native kernels look for the largest score, or XLA.

    Returns:
        [R, V] float32.
    """
    rows, vocab_size = scores.shape

    def constrained() -> tf.Tensor:
        bits = tf.constant([1 << bit for bit in range(8)], tf.uint8)
        is_set = tf.bitwise.bitwise_and(constraints.allowed[..., tf.newaxis], bits) != 0
        allowed = tf.reshape(is_set, [rows, -1])[:, :vocab_size]
        kept = tf.where(allowed, scores, -float("inf"))
        is_empty = Softmax.of(kept, is_native=is_native).largest == -float("inf")
        kept = tf.where(is_empty & allowed, unprocessed, kept)
        return tf.where(constraints.applies[:, tf.newaxis], kept, scores)

    return tf.cond(tf.reduce_any(constraints.applies & active), constrained, lambda: scores)
