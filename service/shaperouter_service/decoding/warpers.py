"""Temperature and truncation, which shape the distribution that tokens are sampled from.

They follow Hugging Face Transformers, which calls them warpers, and its order. Transformers sorts
the vocabulary; here one bisection finds any threshold, for rows with different options.
"""

import tensorflow as tf

from shaperouter_service import kernels
from shaperouter_service.decoding.options import Options
from shaperouter_service.decoding.softmax import Softmax

# The order of truncations.
_TOP_K, _TOP_P, _MIN_P, _TYPICAL_P, _EPSILON, _ETA = range(6)


def warp(
    scores: tf.Tensor,
    options: Options,
    min_kept: tf.Tensor | int,
    applies: tf.Tensor,
    *,
    is_native: bool,
) -> tf.Tensor:
    """Applies temperature, and then all truncations, in order.

    Args:
        scores: [R, V] float32; logits, or values that differ from them by a constant.
        options: Options of R rows.
        min_kept: Minimum number of tokens that truncation leaves: an int, or [R] int32.
        applies: [R] bool; other rows stay as they are.
        is_native: Whether the native kernels compute it, or XLA.

    Returns:
        [R, V] float32, minus infinity where truncated.
    """
    min_kept = tf.broadcast_to(min_kept, [scores.shape[0]])
    if is_native:
        return kernels.truncate(
            scores,
            applies,
            temperature=options.temperature,
            top_k=options.top_k,
            top_p=options.top_p,
            min_p=options.min_p,
            typical_p=options.typical_p,
            epsilon_cutoff=options.epsilon_cutoff,
            eta_cutoff=options.eta_cutoff,
            min_kept=min_kept,
        )
    warped = _warp(scores / options.temperature[:, tf.newaxis], options, min_kept, applies)
    return tf.where(applies[:, tf.newaxis], warped, scores)


def _warp(
    scores: tf.Tensor, options: Options, min_kept: tf.Tensor, applies: tf.Tensor
) -> tf.Tensor:
    """Applies all truncations by XLA's operations; the result of other rows is undefined."""
    vocab_size = scores.shape[1]
    min_kept = tf.cast(min_kept, tf.float32)
    # In order: which rows enable a truncation, and the mass that it leaves; `min_kept` where a
    # token's own probability decides.
    top_k = tf.cast(tf.minimum(options.top_k, vocab_size), tf.float32)
    enabled = tf.stack(
        [
            options.top_k > 0,
            options.top_p < 1,
            options.min_p > 0,
            options.typical_p < 1,
            options.epsilon_cutoff > 0,
            options.eta_cutoff > 0,
        ]
    )  # [6, R]
    masses = tf.stack(
        [
            tf.maximum(top_k, min_kept),
            options.top_p,
            min_kept,
            options.typical_p,
            min_kept,
            min_kept,
        ]
    )
    # One loop shares one bisection among all truncations, because compiling a bisection is slow.
    _, scores = tf.while_loop(
        lambda kind, scores: kind <= _ETA,
        lambda kind, scores: (
            kind + 1,
            tf.cond(
                tf.reduce_any(enabled[kind] & applies),
                lambda: _truncate(
                    scores, kind, enabled[kind], masses[kind], min_kept=min_kept, options=options
                ),
                lambda: scores,
            ),
        ),
        (tf.constant(_TOP_K), scores),
    )
    return scores


def _truncate(
    scores: tf.Tensor,
    kind: tf.Tensor,
    enabled: tf.Tensor,
    mass: tf.Tensor,
    *,
    min_kept: tf.Tensor,
    options: Options,
) -> tf.Tensor:
    """Applies one kind of truncation to the rows that ask for it."""
    softmax = Softmax.of(scores, is_native=False)
    logprobs = softmax.logprobs(scores)
    values = tf.where(kind == _TYPICAL_P, -tf.abs(-logprobs - softmax.entropy), scores)
    is_cut = (kind == _MIN_P) | (kind == _EPSILON) | (kind == _ETA)
    is_count = (kind == _TOP_K) | is_cut
    weights = tf.where(is_count, tf.ones_like(scores), tf.exp(logprobs))
    threshold = _threshold(values, weights, mass, min_kept)
    # A probability, or a share of the likeliest token's, is an offset from that token's logit.
    eta = options.eta_cutoff[:, tf.newaxis]
    eta = tf.minimum(eta, tf.sqrt(eta) * tf.exp(-softmax.entropy))
    cut = tf.where(kind == _ETA, eta, options.epsilon_cutoff[:, tf.newaxis])
    cut /= tf.exp(-softmax.log_sum)
    cut = tf.where(kind == _MIN_P, options.min_p[:, tf.newaxis], cut)
    cut = softmax.largest + tf.math.log(cut)
    threshold = tf.where(is_cut, tf.minimum(threshold, cut), threshold)
    return tf.where((values >= threshold) | ~enabled[:, tf.newaxis], scores, -float("inf"))


def _threshold(
    values: tf.Tensor, weights: tf.Tensor, mass: tf.Tensor, min_kept: tf.Tensor
) -> tf.Tensor:
    """Finds the threshold above which the weights reach a mass.

    Args:
        values: [R, V] float32.
        weights: [R, V] float32, at least 0.
        mass: [R] float32.
        min_kept: [R] float32.

    Returns:
        [R, 1] float32, the largest value for which the entries of at least that value number
        `min_kept` or more and have weights that sum to `mass` or more; minus infinity if even all
        entries do not suffice.
    """
    # Read as integers, the bits of floats sort like the floats, except for the sign.
    bits = tf.bitcast(values, tf.uint32)
    sign = tf.constant(0x80000000, tf.uint32)
    order = tf.where(bits >= sign, tf.bitwise.invert(bits), bits | sign)
    rows, size = values.shape
    needed = tf.stack([mass, min_kept])  # [2, R]

    def try_bit(index: tf.Tensor, found: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        bit = tf.bitwise.right_shift(sign, tf.cast(index, tf.uint32))
        tried = found | bit  # [R]
        above = order >= tried[:, tf.newaxis]
        counted = tf.stack([tf.where(above, weights, 0.0), tf.cast(above, tf.float32)])
        # Sums as a matrix product, which XLA computes much faster than a reduction.
        sums = tf.matmul(tf.reshape(counted, [2 * rows, size]), tf.ones([size, 1]))
        enough = tf.reduce_all(tf.reshape(sums, [2, rows]) >= needed, axis=0)
        return index + 1, tf.where(enough, tried, found)

    _, found = tf.while_loop(
        lambda index, found: index < 32,
        try_bit,
        (tf.constant(0), tf.zeros(values.shape[:1], tf.uint32)),
    )
    bits = tf.where(found >= sign, found ^ sign, tf.bitwise.invert(found))
    threshold = tf.where(found == 0, -float("inf"), tf.bitcast(bits, tf.float32))
    return threshold[:, tf.newaxis]
