"""Choosing the next token of every row."""

import tensorflow as tf

from shaperouter_service.decoding.options import SlotOptions
from shaperouter_service.decoding.randomness import gumbel


def choose_tokens(
    logits: tf.Tensor, options: SlotOptions, positions: tf.Tensor, active: tf.Tensor
) -> tf.Tensor:
    """Takes the likeliest token, or samples one by the Gumbel-max trick.

    Args:
        logits: [R, V].
        options: Of R rows.
        positions: [R] int32, the place in the sequence that the token is chosen for.
        active: [R] bool; other rows' tokens mean nothing.

    Returns:
        [R] int32.
    """
    logits = tf.cast(logits, tf.float32)

    def sampled() -> tf.Tensor:
        noise = gumbel(options.seed, positions, logits.shape[1])
        perturbed = logits / options.temperature[:, tf.newaxis] + noise
        return tf.where(options.do_sample[:, tf.newaxis], perturbed, logits)

    # The noise costs as much as the smallest models' step: made only when a row asks for it.
    anyone = tf.reduce_any(options.do_sample & active)
    return tf.argmax(tf.cond(anyone, sampled, lambda: logits), axis=-1, output_type=tf.int32)


def is_end(tokens: tf.Tensor, options: SlotOptions) -> tf.Tensor:
    """Tells which of the tokens [R] end their row: [R] bool."""
    return tf.reduce_any(tokens[:, tf.newaxis] == options.eos_token_ids, axis=-1)
