"""Attention over the caches of a batch: what families call as `Attend`.

A request's cache is a tape of T places. A token of the prompt takes one place, shared by all
beams; a step takes B, one for the newest token of each hypothesis. Nothing on the tape ever moves:
when hypotheses are dropped and split, only their lineage changes, which is the mask of the places
they see.
"""

import tensorflow as tf
from tensorflow.compiler.tf2xla.python.xla import dynamic_update_slice

from shaperouter_service.models.layers import attention


class StepAttention:
    """Attention of the newest token of each hypothesis, which is appended to its row's tape.

    Attributes:
        keys: Of each layer, [R, H, T, D].
        values: Of each layer, [R, H, T, D].
    """

    def __init__(
        self, keys: list[tf.Tensor], values: list[tf.Tensor], starts: tf.Tensor, visible: tf.Tensor
    ) -> None:
        """Appends at places `starts` [R] to starts + B - 1; `visible` [R, B, T] has them."""
        self.keys, self.values = keys, values
        rows, beams, _ = visible.shape
        heads = keys[0].shape[1]
        row, head, beam = tf.meshgrid(
            tf.range(rows), tf.range(heads), tf.range(beams), indexing="ij"
        )
        place = starts[:, tf.newaxis, tf.newaxis] + beam
        # One scatter: XLA updates it in place, and compiles it faster than a write for each row.
        self._places = tf.stack([row, head, place], axis=-1)  # [R, H, B, 3]
        self._visible = visible[:, tf.newaxis]  # [R, 1, B, T]

    def __call__(
        self, layer: int, query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, scale: float
    ) -> tf.Tensor:
        """See `Attend`; P = B."""
        for caches, new in ((self.keys, key), (self.values, value)):
            caches[layer] = tf.tensor_scatter_nd_update(caches[layer], self._places, new)
        return attention(query, self.keys[layer], self.values[layer], self._visible, scale)


class PromptAttention:
    """Attention of a piece of P prompt tokens over what lies before them and over themselves.

    Prompts are padded at the end, so the causal mask alone hides padding: a real token sees only
    what lies before it. What padding leaves on the tape is overwritten before anything sees it.

    Attributes:
        keys: Of each layer, [R, H, T, D].
        values: Of each layer, [R, H, T, D].
    """

    def __init__(
        self, keys: list[tf.Tensor], values: list[tf.Tensor], start: tf.Tensor, tokens: int
    ) -> None:
        """Writes P = `tokens` places from `start`, a scalar."""
        self.keys, self.values = keys, values
        self._start = start
        length = keys[0].shape[2]
        self._is_whole = tokens == length
        place = start + tf.range(tokens)
        self._visible = tf.range(length) <= place[:, tf.newaxis]  # [P, T]

    def __call__(
        self, layer: int, query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, scale: float
    ) -> tf.Tensor:
        """See `Attend`."""
        for caches, new in ((self.keys, key), (self.values, value)):
            caches[layer] = new if self._is_whole else self._write(caches[layer], new)
        return attention(query, self.keys[layer], self.values[layer], self._visible, scale)

    def _write(self, cache: tf.Tensor, new: tf.Tensor) -> tf.Tensor:
        zero = tf.zeros([], tf.int32)
        return dynamic_update_slice(cache, new, tf.stack([zero, zero, self._start, zero]))
