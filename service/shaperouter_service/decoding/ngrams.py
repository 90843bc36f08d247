"""Runs of tokens that must not repeat, banned in a time that does not depend on their length.

Each position of a sequence has a count: how many tokens just before it equal, one by one, the
newest tokens of the sequence. Another token makes each count that of the position before it, plus
one where the token there equals the new one, and zero elsewhere. So a step updates the counts with
one comparison a position, whatever length of runs a request names; and a token would complete a
repeated run of n where it follows n - 1 that match.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf


def count_matches(tokens: Sequence[int]) -> np.ndarray:
    """The counts of a whole sequence, for its first step.

    Returns:
        [N] int32, for N tokens. It is the Z-function (Gusfield 1997) of the reversed sequence,
        which takes time in proportion to N.
    """
    newest_first = list(reversed(tokens))
    size = len(newest_first)
    counts = [0] * size
    # What lies from `start` to `end` equals the beginning.
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
    """The counts after another token.

    Args:
        matches: [..., N] int32, the counts before.
        tokens: [..., N] int32, the sequences before, or others that they are compared with.
        new: [...] int32, the tokens that follow them.

    Returns:
        [..., N] int32.
    """
    counts = tf.where(tokens == new[..., tf.newaxis], matches + 1, 0)
    return tf.concat([tf.zeros_like(counts[..., :1]), counts[..., :-1]], axis=-1)


def completes_repeated_ngram(matches: tf.Tensor, lengths: tf.Tensor, sizes: tf.Tensor) -> tf.Tensor:
    """Tells whose tokens, if they came next, would complete a run that is already there.

    Args:
        matches: [R, N] int32.
        lengths: [R] int32, of the sequences.
        sizes: [R] int32, n; 0 is no limit.

    Returns:
        [R, N] bool.
    """
    size = sizes[:, tf.newaxis]
    is_there = tf.range(matches.shape[1]) < lengths[:, tf.newaxis]
    return (size > 0) & is_there & (matches >= size - 1)
