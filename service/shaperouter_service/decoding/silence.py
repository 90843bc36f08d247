"""Whether anybody speaks: the probability of a token that is never made.

A model that makes transcripts knows a token for silence. How likely it would follow a certain token
of the prompt is found out where that token is read: by prefill, or by the first step, which reads
the last one of a prompt.
"""

from collections.abc import Callable

import tensorflow as tf

from shaperouter_service.decoding.options import NO_TOKEN, TranscriptRules


def reads_silence(
    rules: TranscriptRules, places: tf.Tensor, count: int, active: tf.Tensor
) -> tf.Tensor:
    """Which rows read the token now that the one for silence would follow.

    Args:
        rules: Of R rows.
        places: [R] int32 or one for all rows, of the first of the tokens that are read.
        count: How many tokens each row reads.
        active: [R] bool.

    Returns:
        [R] bool.
    """
    there = (rules.no_speech_place >= places) & (rules.no_speech_place < places + count)
    return active & there & (rules.no_speech_token != NO_TOKEN)


def no_speech_probability(
    known: tf.Tensor,
    reads: tf.Tensor,
    rules: TranscriptRules,
    logits: Callable[[], tf.Tensor],
) -> tf.Tensor:
    """The probability that nobody speaks, of each row.

    Args:
        known: [R] float32, what was found out before.
        reads: [R] bool, the rows of which it is found out now.
        rules: Of R rows.
        logits: Makes [R, V] float32, after the token in question; called in a branch that is
            skipped where no row needs it.

    Returns:
        [R] float32.
    """

    def found() -> tf.Tensor:
        probabilities = tf.nn.softmax(logits())
        token = tf.maximum(rules.no_speech_token, 0)
        return tf.where(reads, tf.gather(probabilities, token, batch_dims=1), known)

    return tf.cond(tf.reduce_any(reads), found, lambda: known)
