"""Fitting: the cheapest ladder for a demand.

Another rung means less padding, but one more compilation of each graph of its length. Dynamic
programming finds which rungs pay, and how many: the lowest cost of serving all lengths up to a rung
is that of serving those up to some lower rung, plus the rest on this one.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from shaperouter_service.routing.ladder import LENGTH_MULTIPLE, Ladder

# Costs that differ by a smaller fraction are equal; they were only summed in another order.
ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True)
class Expected:
    """The expected cost of a ladder.

    Attributes:
        device_seconds: Device time of the calls, including padding.
        padding_seconds: The part of device_seconds that exact lengths would save.
        compile_seconds: Time to compile the graphs in use.
    """

    device_seconds: float
    padding_seconds: float
    compile_seconds: float

    @property
    def padding_share(self) -> float:
        """Fraction of the device time that is padding."""
        return self.padding_seconds / self.device_seconds if self.device_seconds else 0.0

    @property
    def cost(self) -> float:
        """Seconds that a better ladder could save."""
        return self.padding_seconds + self.compile_seconds


@dataclass(frozen=True, kw_only=True)
class Demand:
    """Demand on a ladder by prefill, or by the lane of one beam width.

    Attributes:
        beams: Positions that a rung has for each of its tokens; 1 for prefill.
        calls: Number of calls by exact length, in positions.
        seconds: Device time of a call that is padded to a length in positions; must not decrease.
        compile_seconds: Time to compile the graphs of a rung that serves any of the calls.
    """

    beams: int
    calls: Mapping[int, float]
    seconds: Callable[[int], float]
    compile_seconds: float

    def times(self, factor: float) -> "Demand":
        """The same demand with `factor` times as many calls."""
        calls = {length: factor * count for length, count in self.calls.items()}
        return replace(self, calls=calls)

    def expected(self, ladder: Ladder) -> Expected:
        """The expected cost on a ladder whose rungs are in positions."""
        rungs = {length: ladder.cover(length) for length in self.calls}
        padded = sum(count * self.seconds(rungs[length]) for length, count in self.calls.items())
        exact = sum(count * self.seconds(length) for length, count in self.calls.items())
        # Traffic that has decayed to nothing needs no graph.
        used = {rungs[length] for length, count in self.calls.items() if count}
        return Expected(
            device_seconds=padded,
            padding_seconds=padded - exact,
            compile_seconds=len(used) * self.compile_seconds,
        )


def fit_ladder(
    demands: Sequence[Demand],
    *,
    maximum: int,
    max_rungs: int | None = None,
    multiple: int = LENGTH_MULTIPLE,
) -> Ladder:
    """Finds the ladder with the lowest cost of padding and compilations together.

    A rung that serves nothing costs nothing. Among ladders of equal cost, one with the fewest rungs
    is returned.

    Args:
        demands: Demands on the ladder; no length is above `maximum` times the demand's beams.
        maximum: The last rung, in tokens.
        max_rungs: Maximum number of rungs, at least 1; None means as many as pay.
        multiple: All rungs below the last are multiples of it.

    Returns:
        The ladder, in tokens.
    """
    rungs = _candidates(demands, maximum, multiple)
    costs = _costs(demands, rungs)
    # For each rung, the lowest cost of the ladders that end with it, and that ladder's rungs.
    best: list[tuple[float, tuple[int, ...]]] = [
        (costs[last][0], (rung,)) for last, rung in enumerate(rungs)
    ]
    for _ in range(1, max_rungs or len(rungs)):
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


def _candidates(demands: Sequence[Demand], maximum: int, multiple: int) -> list[int]:
    """Rungs that can pay. Any other rung could be lowered to one of these at no higher cost."""
    tokens = (math.ceil(length / demand.beams) for demand in demands for length in demand.calls)
    rungs = {math.ceil(length / multiple) * multiple for length in tokens}
    return sorted({rung for rung in rungs if rung < maximum} | {maximum})


def _costs(demands: Sequence[Demand], rungs: Sequence[int]) -> list[list[float]]:
    """Costs of serving, on one rung, all lengths above the rung before `first` and up to itself.

    Returns:
        A row for each rung, with one number for each `first` up to that rung's own index.
    """
    costs = [[0.0] * (last + 1) for last in range(len(rungs))]
    for demand in demands:
        positions = Ladder(tuple(demand.beams * rung for rung in rungs))
        calls = dict.fromkeys(positions.rungs, 0.0)
        for length, count in demand.calls.items():
            calls[positions.cover(length)] += count
        for last, rung in enumerate(positions.rungs):
            seconds, served = demand.seconds(rung), 0.0
            for first in range(last, -1, -1):
                served += calls[positions.rungs[first]]
                if served:
                    costs[last][first] += served * seconds + demand.compile_seconds
    return costs
