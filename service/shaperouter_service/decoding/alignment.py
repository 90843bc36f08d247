"""Attention scores that show when the words of a transcript were spoken.

Some heads of Whisper's decoder attend to the position in the source where the next token is spoken.
The model reads the transcript once more for their scores, which `transcription.words` turns into
times.
"""

from collections.abc import Sequence

import tensorflow as tf

from shaperouter_service.decoding.attention import LayerCaches
from shaperouter_service.decoding.caches import widened
from shaperouter_service.models.family import EncoderDecoder
from shaperouter_service.models.layers import attention
from shaperouter_service.models.weights import Weights


def alignment_scores(
    family: EncoderDecoder,
    weights: Weights,
    token_ids: tf.Tensor,
    *,
    source: list[tf.Tensor],
    heads: Sequence[tuple[int, int]],
    text_tokens: int,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Reads whole transcripts and returns their attention scores and log-probabilities.

    Args:
        family: Family of the model.
        weights: Weights as named by the family's `read_weights`.
        token_ids: [R, P] int32; padding after a transcript does not affect it.
        source: Caches of the encoded source; see `LayerCaches`.
        heads: A attention heads, each as a layer and a head.
        text_tokens: Ids below this are text; other tokens are left out of the probabilities.

    Returns:
        Scores [R, A, P, S] float32, before the softmax over S; and [R, P - 1] float32,
        log-probabilities of all tokens but the first.
    """
    attend = _AlignmentAttention(family, token_ids.shape, source, heads)
    positions = tf.broadcast_to(attend.positions, token_ids.shape)
    hidden = family.forward(weights, token_ids, positions, attend)
    logits = family.logits(weights, hidden[:, :-1])[:, :, :text_tokens]
    chosen = tf.gather(logits, tf.minimum(token_ids[:, 1:], text_tokens - 1), batch_dims=2)
    logprobs = chosen - tf.reduce_logsumexp(logits, axis=-1)
    return attend.scores(), logprobs


class _AlignmentAttention:
    """Attention of a whole transcript that keeps the queries of some heads to the source.

    Attributes:
        layer: Index of the layer that runs now.
        caches: Those queries, scaled: [R, A, P, D].
        positions: See `AttendWithSource`.
    """

    def __init__(
        self,
        family: EncoderDecoder,
        shape: Sequence[int],
        source: list[tf.Tensor],
        heads: Sequence[tuple[int, int]],
    ) -> None:
        rows, tokens = shape
        self._source = LayerCaches(source)
        self._layers, self._heads = (list(column) for column in zip(*heads, strict=True))
        self.layer: int | tf.Tensor = 0
        dtype = widened(source[0][:0]).dtype
        self.caches = tf.zeros([rows, len(heads), tokens, family.head_size], dtype)
        self._scale = 1.0
        self.positions = tf.range(tokens)[tf.newaxis]
        self._causal = self.positions <= tf.transpose(self.positions)  # [P, P]

    def __call__(
        self,
        query: tf.Tensor,
        key: tf.Tensor,
        value: tf.Tensor,
        scale: float,
        *,
        bias: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """See `Attend`."""
        return attention(query, key, value, self._causal, scale, bias=bias)

    def to_source(self, query: tf.Tensor, scale: float) -> tf.Tensor:
        """See `AttendWithSource`."""
        self._scale = scale
        is_here = tf.equal(self._layers, self.layer)[:, tf.newaxis, tf.newaxis]
        self.caches = tf.where(is_here, tf.gather(query, self._heads, axis=1), self.caches)
        self._source.layer = self.layer
        everything = tf.ones([1, 1, 1, 1], tf.bool)
        return attention(query, *self._source.read(), everything, scale)

    def scores(self) -> tf.Tensor:
        """[R, A, P, S] float32, after the last layer."""
        keys = []
        for layer, head in zip(self._layers, self._heads, strict=True):
            self._source.layer = layer
            keys.append(widened(self._source.stacks[0][:, self._source.layer_in_stack, head]))
        product = tf.matmul(self.caches, tf.stack(keys, axis=1), transpose_b=True)
        return tf.cast(product, tf.float32) * self._scale
