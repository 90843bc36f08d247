"""Bans on repeated runs of tokens, in a time that does not depend on the length of the runs.

Each position of a sequence has a count: how many tokens just before it equal, one by one, the
newest tokens of the sequence. After a new token, the count of a position is one more than that of
the position before it if the token there equals the new one, and zero otherwise. So a step updates
the counts with one comparison per position, for any length of runs. A token would complete a
repeated run of n where it follows n - 1 matching tokens.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf


def count_matches(tokens: Sequence[int]) -> np.ndarray:
    """Computes the counts of a whole sequence, for its first step.

    Returns:
        [N] int32, for N tokens: the Z-function (Gusfield 1997) of the reversed sequence, in time
        proportional to N.
    """
    newest_first = list(reversed(tokens))
    size = len(newest_first)
    counts = [0] * size
    # The tokens from `start` to `end` equal those at the beginning.
    start = end = 0
    for index in range(1, size):
        count = min(end - index, counts[index - start]) if index < end else 0
        while index + count < size and newest_first[count] == newest_first[index + count]:
            count += 1
        counts[index] = count
        if index + count > end:
            start, end = index, index + count
    # The token at a position is the first that does not count.
    return np.array([0, *reversed(counts[1:])][:size], np.int32)


def extend_matches(matches: tf.Tensor, tokens: tf.Tensor, new: tf.Tensor) -> tf.Tensor:
    """Updates the counts after a new token.

    Args:
        matches: [..., N] int32, the counts before the new token.
        tokens: [..., N] int32, the sequences before it, or others that they are compared with.
        new: [...] int32, the new tokens.

    Returns:
        [..., N] int32.
    """
    counts = tf.where(tokens == new[..., tf.newaxis], matches + 1, 0)
    return tf.concat([tf.zeros_like(counts[..., :1]), counts[..., :-1]], axis=-1)


def completes_repeated_ngram(matches: tf.Tensor, lengths: tf.Tensor, sizes: tf.Tensor) -> tf.Tensor:
    """Returns the positions whose tokens, if they came next, would repeat an earlier run.

    Args:
        matches: [R, N] int32.
        lengths: [R] int32, lengths of the sequences.
        sizes: [R] int32, n; 0 means no limit.

    Returns:
        [R, N] bool.
    """
    size = sizes[:, tf.newaxis]
    is_there = tf.range(matches.shape[1]) < lengths[:, tf.newaxis]
    return (size > 0) & is_there & (matches >= size - 1)
