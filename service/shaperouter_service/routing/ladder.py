"""A ladder: the allowed values of one dimension of a signature."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

# Lengths are multiples of 8, except the model's own maximum. A power of two suits vector units and
# tensor cores, and 8 is small enough to add little padding.
LENGTH_MULTIPLE = 8


class OverLadderError(ValueError):
    """A size is above all that a model's ladders have; another worker's may have more."""


@dataclass(frozen=True)
class Ladder:
    """The allowed values of one dimension, ascending."""

    rungs: tuple[int, ...]

    def __post_init__(self) -> None:
        """Checks that the rungs ascend.

        Raises:
            ValueError: The rungs are not positive and strictly ascending.
        """
        ascending = all(low < high for low, high in zip(self.rungs, self.rungs[1:], strict=False))
        if not self.rungs or self.rungs[0] < 1 or not ascending:
            raise ValueError(f"rungs must be positive and strictly ascending, got {self.rungs}")

    @property
    def maximum(self) -> int:
        """The last rung."""
        return self.rungs[-1]

    def cover(self, value: int) -> int:
        """Returns the first rung that is at least `value`.

        Raises:
            OverLadderError: `value` is above the last rung. Requests are validated before.
        """
        if value > self.maximum:
            raise OverLadderError(f"{value} is over the last rung, {self.maximum}")
        return self.rungs[bisect_left(self.rungs, value)]


def length_ladder(maximum: int, *, shortest: int, max_padding: float) -> Ladder:
    """Builds the ladder with the fewest rungs that limits padding to a fraction of the request.

    It is built from the top, so that the model's maximum is a rung without a close neighbour below.

    Args:
        maximum: Last rung, in tokens.
        shortest: First rung, in tokens; shorter requests are padded to it, whatever the fraction.
        max_padding: Maximum padding above `shortest`, as a fraction of the request's own length.

    Raises:
        ValueError: The fraction is too small for rungs that are multiples of LENGTH_MULTIPLE.
    """
    rungs = [maximum]
    while rungs[0] > shortest:
        # The request with the most padding on a rung is one token longer than the rung below.
        minimum = rungs[0] / (1 + max_padding) - 1
        below = max(shortest, math.ceil(minimum / LENGTH_MULTIPLE) * LENGTH_MULTIPLE)
        if below >= rungs[0]:
            raise ValueError(f"no rung below {rungs[0]} keeps padding under {max_padding}")
        rungs.insert(0, below)
    return Ladder(tuple(rungs))


def chosen_ladder(lengths: Sequence[int], *, maximum: int) -> Ladder:
    """Builds the ladder of the given lengths, with the model's maximum as the last.

    Raises:
        ValueError: The lengths do not ascend, one is above the maximum, or one below it is not a
            multiple of LENGTH_MULTIPLE.
    """
    ladder = Ladder(tuple(lengths))
    for length in lengths:
        if length > maximum:
            raise ValueError(f"must be at most {maximum}, the model's maximum; got {length}")
        if length % LENGTH_MULTIPLE and length != maximum:
            raise ValueError(
                f"must be multiples of {LENGTH_MULTIPLE}, except the model's maximum; got {length}"
            )
    return ladder if ladder.maximum == maximum else Ladder((*lengths, maximum))


def doubling_ladder(maximum: int) -> Ladder:
    """Builds the ladder 1, 2, 4, … that ends at exactly `maximum`."""
    rungs = []
    rung = 1
    while rung < maximum:
        rungs.append(rung)
        rung *= 2
    return Ladder((*rungs, maximum))
