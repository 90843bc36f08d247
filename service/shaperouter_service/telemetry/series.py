"""Metrics that are updated for every request or token."""

import functools
from bisect import bisect_left
from collections.abc import Iterable
from typing import Any

from prometheus_client import Counter, Gauge, Histogram


def remember_series(metrics: Iterable[Counter | Gauge | Histogram]) -> None:
    """Makes metrics remember their series by labels.

    Looking a series up takes several times as long as counting in it.

    Args:
        metrics: The metrics. Their series may only be removed by `remove_series`.
    """
    # The caches need no limit: a metric keeps all its series anyway, and a cache holds only one
    # more reference to each. Their labels are names of served models or from the configuration,
    # and of enumerations, never text of a request.
    for metric in metrics:
        # mypy allows no method to be replaced, not even by one with the same arguments.
        metric.labels = functools.cache(metric.labels)  # type: ignore[method-assign, assignment]


def remove_series(metric: Counter | Gauge | Histogram, *labels: str) -> None:
    """Removes one series of a metric that remembers its series."""
    metric.remove(*labels)
    remembering: Any = metric.labels
    remembering.cache_clear()


class RepeatedHistogram(Histogram):
    """A histogram whose values often come several at a time."""

    def observe_repeated(self, amount: float, count: int) -> None:
        """Observes the same value `count` times, at the cost of once."""
        self._sum.inc(amount * count)
        self._buckets[bisect_left(self._upper_bounds, amount)].inc(count)
