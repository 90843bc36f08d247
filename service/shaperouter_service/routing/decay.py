"""Exponential decay of counts: after each HALF_LIFE, past events count half as much.

What a graph saved long ago says little about what it will save. Without decay, a change of traffic
would never outweigh the past, and rare requests would add up until their graphs seemed worth
compiling. The record of traffic and the counts of a running worker decay alike, so that a worker
which has just loaded the record agrees with one that has run for long.
"""

from typing import NamedTuple

# Seconds after which traffic counts half. With a week, neither a quiet weekend nor a release an
# hour ago outweighs the usual traffic.
HALF_LIFE = 7 * 24 * 3600.0


def share_left(seconds: float) -> float:
    """Fraction of a count that is left after some seconds; 1 for a time in the future."""
    return float(0.5 ** (max(0.0, seconds) / HALF_LIFE))


class _Sum(NamedTuple):
    value: float
    as_of: float


class DecayingSum:
    """A decaying sum. One thread adds; any thread may read."""

    def __init__(self) -> None:
        """Starts at zero."""
        # Replaced as a whole, so that readers in other threads see a consistent value.
        self._sum = _Sum(0.0, 0.0)

    def add(self, amount: float, now: float) -> None:
        """Adds an amount at a time in seconds, on a clock of the caller's that never goes back."""
        self._sum = _Sum(self.at(now) + amount, now)

    def at(self, now: float) -> float:
        """The decayed sum at a time on that clock."""
        value, as_of = self._sum
        return value * share_left(now - as_of)
