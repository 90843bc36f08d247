"""The growth of a measured quantity, with its confidence interval."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from rich.table import Table

# With fewer samples, the interval says nothing.
FEWEST = 10
# Neighbours of real samples resemble each other; more than this cannot be told from a few samples.
_LARGEST_CORRELATION = 0.9
# The share of the samples in which graphs are compiled and allocators fill.
WARM_UP = 0.25


@dataclass(frozen=True, kw_only=True)
class Trend:
    """A line through samples of a quantity.

    Attributes:
        mean: Mean of the samples.
        slope: Growth in a unit of time.
        margin: The slope is within this margin of the true one with the asked confidence.
    """

    mean: float
    slope: float
    margin: float

    @property
    def grows(self) -> bool:
        """Whether growth is certain."""
        return self.slope - self.margin > 0


def trend(times: Sequence[float], values: Sequence[float], *, confidence: float = 0.95) -> Trend:
    """Fits a line by least squares.

    Successive samples are correlated, so that they tell less than as many independent ones. The
    margin is that of fewer samples, by the correlation of successive residuals.

    Raises:
        ValueError: There are fewer than `FEWEST` samples.
    """
    if len(times) < FEWEST:
        raise ValueError(f"at least {FEWEST} samples are needed, got {len(times)}")
    x, y = np.asarray(times, float), np.asarray(values, float)
    mean = float(y.mean())
    x, y = x - x.mean(), y - mean
    spread = float((x * x).sum())
    slope = float((x * y).sum()) / spread
    residuals = y - slope * x
    squares = float((residuals * residuals).sum())
    correlation = float((residuals[1:] * residuals[:-1]).sum()) / squares if squares else 0.0
    correlation = min(max(correlation, 0.0), _LARGEST_CORRELATION)
    inflation = (1 + correlation) / (1 - correlation)
    freedom = max(1.0, len(x) / inflation - 2)
    error = math.sqrt(squares / (len(x) - 2) / spread * inflation)
    return Trend(mean=mean, slope=slope, margin=_quantile(0.5 + confidence / 2, freedom) * error)


def trend_table(hours: Sequence[float], columns: Mapping[str, Sequence[float]]) -> Table | None:
    """A table of the slopes of quantities after the warm-up; None if there are too few samples.

    Args:
        hours: When each sample was taken.
        columns: The samples of each quantity, by its name and unit.
    """
    first = round(WARM_UP * len(hours))
    if len(hours) - first < FEWEST:
        return None
    later = hours[first:]
    title = f"{len(later)} samples in {later[-1] - later[0]:.2f} h, after the warm-up"
    table = Table("quantity", "mean", "slope an hour", "growth", title=title)
    for name, values in columns.items():
        found = trend(later, values[first:])
        table.add_row(
            name,
            f"{found.mean:.1f}",
            f"{found.slope:+.3f} ± {found.margin:.3f}",
            "grows" if found.grows else "none found",
        )
    return table


def means(values: Sequence[float], count: int) -> list[float]:
    """The mean of each so many successive values; a rest at the end is left out."""
    whole = len(values) // count * count
    return np.asarray(values[:whole], float).reshape(-1, count).mean(axis=1).tolist()


def _quantile(probability: float, freedom: float) -> float:
    """Student's t, by the expansion of Cornish and Fisher: within 2 % from 4 degrees of freedom."""
    z = statistics.NormalDist().inv_cdf(probability)
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )
