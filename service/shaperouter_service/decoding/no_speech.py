"""Probability that nobody speaks: that of Whisper's no-speech token, which is never generated.

It is read from the logits after one token of the prompt. Prefill reads that token; if it is the
last one of the prompt, the first decode step does.
"""

from collections.abc import Callable

import tensorflow as tf

from shaperouter_service.decoding.options import TranscriptRules
from shaperouter_service.decoding.softmax import Softmax
from shaperouter_service.generation.option import NO_TOKEN


def reads_no_speech(
    rules: TranscriptRules, start: tf.Tensor, count: int, active: tf.Tensor
) -> tf.Tensor:
    """Whether each row now reads the token whose logits give the probability.

    Args:
        rules: The rules of R rows.
        start: [R] int32, or one for all rows: position of the first token that is read.
        count: Number of tokens that each row reads.
        active: [R] bool.

    Returns:
        [R] bool.
    """
    in_range = (rules.no_speech_position >= start) & (rules.no_speech_position < start + count)
    return active & in_range & (rules.no_speech_token != NO_TOKEN)


def no_speech_probability(
    known: tf.Tensor,
    reads: tf.Tensor,
    rules: TranscriptRules,
    logits: Callable[[], tf.Tensor],
    *,
    is_native: bool,
) -> tf.Tensor:
    """Computes the probability that nobody speaks, for the rows in `reads`.

    Args:
        known: [R] float32, the probabilities so far.
        reads: [R] bool, from `reads_no_speech`.
        rules: The rules of R rows.
        logits: Computes the logits after the token, [R, V] float32; called in a branch that is
            skipped if no row needs it.
        is_native: Whether the native kernels compute softmax, or XLA.

    Returns:
        [R] float32.
    """

    def compute() -> tf.Tensor:
        after = logits()
        logprobs = Softmax.of(after, is_native=is_native).logprobs(after)
        token = tf.maximum(rules.no_speech_token, 0)
        return tf.where(reads, tf.exp(tf.gather(logprobs, token, batch_dims=1)), known)

    return tf.cond(tf.reduce_any(reads), compute, lambda: known)
