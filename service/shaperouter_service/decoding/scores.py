"""Log-probabilities of the tokens of prompts.

The logits of a whole piece would take V floats for each of its tokens: 130 MB for a vocabulary of
256,000. So the head runs on a slice of the tokens at a time, and only their own log-probabilities
and those of the likeliest tokens are kept.
"""

from collections.abc import Callable

import tensorflow as tf

from shaperouter_service.decoding.search import Logprobs
from shaperouter_service.decoding.tf_internals import dynamic_update_slice

# Tokens of a slice, in all rows. Larger slices read the head's weights less often.
SLICE_TOKENS = 32


def token_logprobs(
    hidden: tf.Tensor,
    tokens: tf.Tensor,
    *,
    count: tf.Tensor,
    likeliest: tf.Tensor,
    is_native: bool,
    logits: Callable[[tf.Tensor], tf.Tensor],
) -> Logprobs:
    """Computes the log-probabilities of tokens, each from the hidden state before it.

    Args:
        hidden: [R, P, E].
        tokens: [R, P] int32.
        count: int32, how many of each row's tokens to compute at least; the others may be zero.
        likeliest: bool, whether to look for the likeliest tokens, too.
        is_native: Whether the native kernels compute softmax, or XLA.
        logits: The head: [N, E] to [N, V] float32.

    Returns:
        [R, P, ...].
    """
    rows, length, size = hidden.shape
    width = min(length, max(1, SLICE_TOKENS // rows))

    def compute(first: tf.Tensor, found: Logprobs) -> tuple[tf.Tensor, Logprobs]:
        # The last slice computes some tokens again, so as not to reach beyond the piece.
        start = tf.minimum(first, length - width)
        slice_hidden = tf.slice(hidden, [0, start, 0], [rows, width, size])
        slice_tokens = tf.slice(tokens, [0, start], [rows, width])
        flat = Logprobs.of(
            logits(tf.reshape(slice_hidden, [rows * width, size])),
            tf.reshape(slice_tokens, [-1]),
            likeliest=likeliest,
            is_native=is_native,
        )

        def write(whole: tf.Tensor, part: tf.Tensor) -> tf.Tensor:
            part = tf.reshape(part, [rows, width, *part.shape[1:]])
            at = tf.stack([0, start, *[0] * (len(whole.shape) - 2)])
            return dynamic_update_slice(whole, part, at)

        return first + width, Logprobs(*map(write, found, flat))

    end = tf.minimum(count, length)
    _, found = tf.while_loop(
        lambda first, _: first < end, compute, (tf.constant(0), Logprobs.none(rows, length))
    )
    return Logprobs(*found)
