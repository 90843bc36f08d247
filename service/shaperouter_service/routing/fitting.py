"""Fitting: the ladder that costs least for what is asked of it.

A rung more means less padding and one more compilation of each graph that has its length. Which
rungs, and how many, is found by dynamic programming: the least cost of serving all lengths up to a
rung is that of serving those up to some lower rung, and the rest on this one.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from shaperouter_service.routing.ladders import LENGTH_MULTIPLE, Ladder

# Costs that differ by a smaller share are the same, summed in another order.
ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What a ladder is expected to cost.

    Attributes:
        device_seconds: Device time of the calls, padding included.
        padding_seconds: Of it, what they would not take at their exact lengths.
        compile_seconds: Time to compile what is used of it.
    """

    device_seconds: float
    padding_seconds: float
    compile_seconds: float

    @property
    def padding_share(self) -> float:
        """Share of the device time that is padding."""
        return self.padding_seconds / self.device_seconds if self.device_seconds else 0.0

    @property
    def cost(self) -> float:
        """Seconds that a better ladder might save."""
        return self.padding_seconds + self.compile_seconds


@dataclass(frozen=True, kw_only=True)
class Demand:
    """What is asked of a ladder by prefill, or by the lane of one beam width.

    Attributes:
        beams: Places that a rung has for each of its tokens; 1 for prefill.
        calls: Number of calls by exact length, in places.
        seconds: Device time of a call that is padded to a length in places; it must not fall.
        compile_seconds: Time to compile what a rung needs that serves any of the calls.
    """

    beams: int
    calls: Mapping[int, float]
    seconds: Callable[[int], float]
    compile_seconds: float

    def times(self, factor: float) -> "Demand":
        """The same, asked so many times as often."""
        calls = {length: factor * count for length, count in self.calls.items()}
        return replace(self, calls=calls)

    def expected(self, ladder: Ladder) -> Expected:
        """What it costs on a ladder whose rungs are in places."""
        rungs = {length: ladder.cover(length) for length in self.calls}
        padded = sum(count * self.seconds(rungs[length]) for length, count in self.calls.items())
        exact = sum(count * self.seconds(length) for length, count in self.calls.items())
        # Traffic that has faded to nothing needs no graph.
        used = {rungs[length] for length, count in self.calls.items() if count}
        return Expected(
            device_seconds=padded,
            padding_seconds=padded - exact,
            compile_seconds=len(used) * self.compile_seconds,
        )


def fit_ladder(demands: Sequence[Demand], *, maximum: int, most_rungs: int | None = None) -> Ladder:
    """Finds the ladder that costs least in padding and compilations together.

    Its inner rungs are multiples of LENGTH_MULTIPLE. A rung that serves nothing costs nothing; of
    ladders that cost the same, one with the fewest rungs is returned.

    Args:
        demands: What is asked of it; no length is over `maximum` times the demand's beams.
        maximum: The last rung, in tokens.
        most_rungs: Most rungs, at least 1; None is as many as pay.

    Returns:
        The ladder, in tokens.
    """
    rungs = _candidates(demands, maximum)
    costs = _costs(demands, rungs)
    # For each rung, of the ladders that end with it: the least cost, and that ladder's rungs.
    best: list[tuple[float, tuple[int, ...]]] = [
        (costs[last][0], (rung,)) for last, rung in enumerate(rungs)
    ]
    for _ in range(1, most_rungs or len(rungs)):
        better = list(best)
        for last, rung in enumerate(rungs):
            for below in range(last):
                cost = best[below][0] + costs[last][below + 1]
                if cost < better[last][0] * (1 - ROUNDING):
                    better[last] = cost, (*best[below][1], rung)
        if better == best:
            break
        best = better
    return Ladder(best[-1][1])


def _candidates(demands: Sequence[Demand], maximum: int) -> list[int]:
    """Rungs that can pay: any other could be lowered to one of these, and would cost no more."""
    tokens = (math.ceil(length / demand.beams) for demand in demands for length in demand.calls)
    rungs = {math.ceil(length / LENGTH_MULTIPLE) * LENGTH_MULTIPLE for length in tokens}
    return sorted({rung for rung in rungs if rung < maximum} | {maximum})


def _costs(demands: Sequence[Demand], rungs: Sequence[int]) -> list[list[float]]:
    """What each rung costs that serves all lengths from over the one before `first` up to itself.

    Returns:
        A row for each rung, and in it a number for each `first` up to that rung's own place.
    """
    costs = [[0.0] * (last + 1) for last in range(len(rungs))]
    for demand in demands:
        places = Ladder(tuple(demand.beams * rung for rung in rungs))
        calls = dict.fromkeys(places.rungs, 0.0)
        for length, count in demand.calls.items():
            calls[places.cover(length)] += count
        for last, rung in enumerate(places.rungs):
            seconds, served = demand.seconds(rung), 0.0
            for first in range(last, -1, -1):
                served += calls[places.rungs[first]]
                if served:
                    costs[last][first] += served * seconds + demand.compile_seconds
    return costs
