"""When tokens are spoken: the best path through the attention from a transcript to its window.

Letters of shapes: A heads, P tokens, S positions of the source.
"""

import numpy as np

# Width of the median filter, in positions, as in openai/whisper.
MEDIAN_WIDTH = 7


def token_positions(scores: np.ndarray, positions: int) -> np.ndarray:
    """Finds the position of the source where each token begins.

    Args:
        scores: [A, P, S] float32, attention before its softmax; each row is about the token after
            it.
        positions: Number of positions that belong to the recording; later ones are ignored.

    Returns:
        [P] int: the first position of each row on the path.
    """
    weights = _softmax(scores[:, :, :positions])
    deviation = weights.std(axis=1, keepdims=True)
    # A position that all tokens attend to equally has no information.
    centred = weights - weights.mean(axis=1, keepdims=True)
    normed = np.divide(centred, deviation, out=np.zeros_like(centred), where=deviation > 0)
    rows, columns = warp(-median_filter(normed, MEDIAN_WIDTH).mean(axis=0))
    begins = np.diff(rows, prepend=-1) > 0
    return columns[begins]


def warp(costs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Finds the cheapest path from the first corner to the last, by dynamic time warping.

    The costs of an anti-diagonal are summed at once, because they do not depend on each other.

    Args:
        costs: [P, S], the cost of each point.

    Returns:
        Rows and columns of the path's points, in order. Each step goes down, right, or both.
    """
    count, length = costs.shape
    # An extra first row and column of infinite cost keep paths inside.
    totals = np.full([count + 1, length + 1], np.inf, np.float32)
    totals[0, 0] = 0
    for diagonal in range(2, count + length + 1):
        row = np.arange(max(1, diagonal - length), min(count, diagonal - 1) + 1)
        column = diagonal - row
        before = np.minimum(totals[row - 1, column - 1], totals[row - 1, column])
        before = np.minimum(before, totals[row, column - 1])
        totals[row, column] = costs[row - 1, column - 1] + before
    row, column = count, length
    path = []
    while row and column:
        path.append((row - 1, column - 1))
        both, down, right = (
            totals[row - 1, column - 1],
            totals[row - 1, column],
            totals[row, column - 1],
        )
        if right <= min(both, down):
            column -= 1
        elif both <= down:
            row, column = row - 1, column - 1
        else:
            row -= 1
    rows, columns = np.array(path[::-1]).T
    return rows, columns


def median_filter(values: np.ndarray, width: int) -> np.ndarray:
    """Computes medians of `width` values along the last axis, which is mirrored at its ends.

    Args:
        values: [..., S]; unchanged if S is at most half of the width.
        width: An odd number.
    """
    half = width // 2
    if values.shape[-1] <= half:
        return values
    padded = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(half, half)], mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, width, axis=-1)
    return np.asarray(np.partition(windows, half, axis=-1)[..., half])


def _softmax(scores: np.ndarray) -> np.ndarray:
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))
