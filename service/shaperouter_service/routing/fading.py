"""Fading: what happened counts for decisions, and half as much after each HALF_LIFE.

What a graph has earned long ago says little of what it will earn. Without fading a change of
traffic would never outweigh what was before, and what is asked for seldom would add up, in the
end, to what is worth compiling. The record of traffic and the counts of a living worker fade alike,
so that a worker which has just begun by the record and one that has lived for long agree.
"""

from typing import NamedTuple

# Seconds after which traffic counts half: a week, so that neither a quiet weekend nor a release of
# an hour ago outweighs how the service is usually used.
HALF_LIFE = 7 * 24 * 3600.0


def share_left(seconds: float) -> float:
    """Share of a count that is left after some seconds; all of it where that lies ahead."""
    return float(0.5 ** (max(0.0, seconds) / HALF_LIFE))


class _Sum(NamedTuple):
    value: float
    as_of: float


class FadingSum:
    """A sum of parts that fade. One thread adds, any may read."""

    def __init__(self) -> None:
        """Starts at zero."""
        # Replaced as a whole, for those who read meanwhile.
        self._sum = _Sum(0.0, 0.0)

    def add(self, amount: float, now: float) -> None:
        """Adds a part at a time in seconds, on a clock of the caller's that never goes back."""
        self._sum = _Sum(self.at(now) + amount, now)

    def at(self, now: float) -> float:
        """What is left of all parts, at a time on that clock."""
        value, as_of = self._sum
        return value * share_left(now - as_of)
