"""What tells when each token of a transcript was said: attention to the source, all at once.

Some heads of Whisper's decoder attend to the place of the source that the next token is about. The
transcript is read once more for their scores; `transcription.words` makes times of these.
"""

from collections.abc import Sequence

import tensorflow as tf

from shaperouter_service.models.family import EncoderDecoder
from shaperouter_service.models.layers import attention
from shaperouter_service.models.weights import Weights


def alignment_scores(
    family: EncoderDecoder,
    weights: Weights,
    token_ids: tf.Tensor,
    *,
    keys: Sequence[tf.Tensor],
    values: Sequence[tf.Tensor],
    heads: Sequence[tuple[int, int]],
    text_tokens: int,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Reads whole transcripts.

    Args:
        family: Of the model.
        weights: As named by its `read_weights`.
        token_ids: [R, P] int32; padding behind a transcript changes nothing before it.
        keys: Of each layer, what `encode` made of the source: [R, H, S, D].
        values: Likewise.
        heads: A of them, each as a layer and a head.
        text_tokens: How many ids, from 0, are of text; others are left out of probabilities.

    Returns:
        Scores [R, A, P, S] float32, before the softmax over S; and [R, P - 1] float32,
        log-probabilities of all tokens but the first.
    """
    attend = _Listening(keys, values, heads, token_ids.shape[1])
    positions = tf.broadcast_to(attend.positions, token_ids.shape)
    hidden = family.forward(weights, token_ids, positions, attend)
    logits = family.logits(weights, hidden[:, :-1])[:, :, :text_tokens]
    chosen = tf.gather(logits, tf.minimum(token_ids[:, 1:], text_tokens - 1), batch_dims=2)
    logprobs = chosen - tf.reduce_logsumexp(logits, axis=-1)
    return tf.stack([attend.scores[head] for head in heads], axis=1), logprobs


class _Listening:
    """Attention of a whole transcript that keeps the scores of some heads.

    Attributes:
        positions: See `AttendWithSource`.
        scores: By layer and head, [R, P, S].
    """

    def __init__(
        self,
        keys: Sequence[tf.Tensor],
        values: Sequence[tf.Tensor],
        heads: Sequence[tuple[int, int]],
        tokens: int,
    ) -> None:
        self._keys, self._values, self._heads = keys, values, heads
        self.positions = tf.range(tokens)[tf.newaxis]
        self._causal = self.positions <= tf.transpose(self.positions)  # [P, P]
        self.scores: dict[tuple[int, int], tf.Tensor] = {}

    def __call__(
        self,
        layer: int,
        query: tf.Tensor,
        key: tf.Tensor,
        value: tf.Tensor,
        scale: float,
        *,
        bias: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """See `Attend`."""
        del layer
        return attention(query, key, value, self._causal, scale, bias=bias)

    def to_source(self, layer: int, query: tf.Tensor, scale: float) -> tf.Tensor:
        """See `AttendWithSource`."""
        keys = self._keys[layer]
        for wanted, head in self._heads:
            if wanted == layer:
                product = tf.matmul(query[:, head], keys[:, head], transpose_b=True)
                self.scores[layer, head] = tf.cast(product, tf.float32) * scale
        everything = tf.ones([1, 1, 1, 1], tf.bool)
        return attention(query, keys, self._values[layer], everything, scale)
