"""A test whether drawn tokens fit a distribution."""

import numpy as np
import tensorflow as tf

# Quantile of the chi-square distribution: a correct sampler fails a check with one of ten thousand
# seeds, and the seeds are fixed.
P_VALUE_FLOOR = 1e-4


def p_value(drawn: np.ndarray, probabilities: np.ndarray) -> float:
    """Chi-square goodness of fit, with rare tokens pooled and Wilson and Hilferty's tail."""
    counts = np.bincount(drawn, minlength=len(probabilities))
    expected = probabilities / probabilities.sum() * counts.sum()
    common = expected >= 5
    observed = np.append(counts[common], counts[~common].sum())
    expected = np.append(expected[common], expected[~common].sum())
    observed, expected = observed[expected > 0], expected[expected > 0]
    freedom = len(expected) - 1
    statistic = ((observed - expected) ** 2 / expected).sum()
    z = ((statistic / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / (2 / (9 * freedom)) ** 0.5
    return float(0.5 * tf.math.erfc(z / 2**0.5).numpy())
