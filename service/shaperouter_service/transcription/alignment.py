"""When each token was said: a path through the attention of a transcript to its window.

Letters of shapes: A heads, P tokens, S places of the source.
"""

import numpy as np

# Places that the median is taken of, as in openai/whisper.
MEDIAN_WIDTH = 7


def token_places(scores: np.ndarray, places: int) -> np.ndarray:
    """The place where each token begins.

    Args:
        scores: [A, P, S] float32, of attention before its softmax; a row is about the token after
            it.
        places: How many places are the recording's; those behind are left out.

    Returns:
        [P] int: the first place of each row on the path.
    """
    weights = _softmax(scores[:, :, :places])
    deviation = weights.std(axis=1, keepdims=True)
    # A place that no token attends to more than another says nothing.
    centred = weights - weights.mean(axis=1, keepdims=True)
    normed = np.divide(centred, deviation, out=np.zeros_like(centred), where=deviation > 0)
    rows, columns = warp(-median_filter(normed, MEDIAN_WIDTH).mean(axis=0))
    begins = np.diff(rows, prepend=-1) > 0
    return columns[begins]


def warp(costs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The cheapest path from the first corner to the last: dynamic time warping.

    Costs are summed along each anti-diagonal at once, which have nothing to do with one another.

    Args:
        costs: [P, S], of each point.

    Returns:
        Rows and columns of the path's points, in order; each step goes down, right, or both.
    """
    count, length = costs.shape
    # One row and column more than there are points: what a path may not come from is infinite.
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
    """Medians of `width` values along the last axis, which is mirrored at its ends.

    Args:
        values: [..., S]; fewer than half of the width are left as they are.
        width: Odd.
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
