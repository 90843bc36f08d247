"""Random numbers that depend only on the seed, the position and the token.

A counter-based generator needs no state. A request gets the same number for a token at a position
in any batch, graph or chunk, so another worker can continue its generation.
"""

import tensorflow as tf

from shaperouter_service import kernels

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


def threefry2x32(
    key: tuple[tf.Tensor, tf.Tensor], counter: tuple[tf.Tensor, tf.Tensor]
) -> tuple[tf.Tensor, tf.Tensor]:
    """Runs Threefry-2x32 with 20 rounds (Salmon et al. 2011, "Parallel random numbers").

    Args:
        key: Two uint32 tensors.
        counter: Two uint32 tensors; all four broadcast together.

    Returns:
        Two uint32 tensors of uniformly distributed bits.
    """
    schedule = (key[0], key[1], key[0] ^ key[1] ^ tf.constant(_PARITY, tf.uint32))
    x, y = counter[0] + schedule[0], counter[1] + schedule[1]
    for group in range(5):
        for bits in _ROTATIONS[group % 2]:
            x += y
            y = tf.bitwise.left_shift(y, tf.constant(bits, tf.uint32)) | tf.bitwise.right_shift(
                y, tf.constant(32 - bits, tf.uint32)
            )
            y ^= x
        x += schedule[(group + 1) % 3]
        y += schedule[(group + 2) % 3] + tf.constant(group + 1, tf.uint32)
    return x, y


def perturb(
    scores: tf.Tensor,
    seed: tf.Tensor,
    positions: tf.Tensor,
    applies: tf.Tensor,
    *,
    is_native: bool,
) -> tf.Tensor:
    """Adds standard Gumbel noise: the largest results are a sample (Gumbel-max trick).

    Args:
        scores: [R, V] float32, log-probabilities but for a constant.
        seed: [R, 2] uint32.
        positions: [R] int32, position in the sequence that the token is chosen for.
        applies: [R] bool; other rows stay as they are.
        is_native: Whether the native kernels compute it, or XLA.

    Returns:
        [R, V] float32.
    """
    if is_native:
        return kernels.perturb(scores, applies, seed, positions)
    perturbed = scores + gumbel(seed, positions, scores.shape[1])
    return tf.where(applies[:, tf.newaxis], perturbed, scores)


def gumbel(seed: tf.Tensor, positions: tf.Tensor, vocab_size: int) -> tf.Tensor:
    """Returns standard Gumbel noise for every token.

    Args:
        seed: [R, 2] uint32.
        positions: [R] int32, position in the sequence that the token is chosen for.
        vocab_size: V.

    Returns:
        [R, V] float32.
    """
    tokens = tf.range(vocab_size, dtype=tf.int32)
    bits, _ = threefry2x32(
        key=(seed[:, :1], seed[:, 1:]),
        counter=(
            tf.cast(positions, tf.uint32)[:, tf.newaxis],
            tf.cast(tokens, tf.uint32)[tf.newaxis, :],
        ),
    )
    # 23 bits, centred: float32 represents each value exactly, and neither 0 nor 1 occurs.
    high = tf.cast(tf.bitwise.right_shift(bits, tf.constant(9, tf.uint32)), tf.float32)
    uniform = (high + 0.5) * 2.0**-23
    return -tf.math.log(-tf.math.log(uniform))
