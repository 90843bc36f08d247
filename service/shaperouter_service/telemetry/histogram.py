"""Histograms of durations, which workers send to routers."""

from bisect import bisect_left

from shaperouter_service.routing.snapshots import Histogram

# Buckets of device time in seconds, from a step of a tiny model (0.2 ms) to a long prompt on a
# large one.
DEVICE_BOUNDS = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1, 2.5, 5,
    10,
)  # fmt: skip
# Buckets of compilations and stalls in seconds, from a cache hit (50 ms) to a large model
# (minutes).
COMPILE_BOUNDS = (0.05, 0.1, 0.25, 0.5, 1, 2, 3, 5, 7.5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300)


class Durations:
    """A histogram of durations in seconds.

    Not locked: only one thread may observe, and readers may miss the newest observation.
    """

    def __init__(self, bounds: tuple[float, ...]) -> None:
        """Starts at zero, with upper bounds in seconds."""
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        """Counts one duration."""
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.sum += seconds

    def report(self) -> Histogram:
        """The counts so far."""
        return Histogram(self.bounds, tuple(self.counts), self.sum)
