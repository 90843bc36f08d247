"""Ladders fitted to recorded traffic, beside the current ones."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shaperouter_service.routing.call_demand import call_demands
from shaperouter_service.routing.call_ladders import CallLadders
from shaperouter_service.routing.demand import demands
from shaperouter_service.routing.fitting import Demand, fit_ladder
from shaperouter_service.routing.ladder import LENGTH_MULTIPLE, Ladder
from shaperouter_service.routing.signatures import GraphKind
from shaperouter_service.routing.traffic import Traffic

# Requests below which a fitted ladder is unreliable: about ten for each of about ten rungs.
ENOUGH_REQUESTS = 100


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The current and the fitted ladder of encode, of prefill, of one lane or of one axis.

    Attributes:
        title: Which of these, as the table names it.
        demand: The recorded demand.
        today: The current ladder, in positions.
        fitted: The fitted ladder, in positions.
    """

    title: str
    demand: Demand
    today: Ladder
    fitted: Ladder


@dataclass(frozen=True, kw_only=True)
class Fit:
    """The ladders fitted to the traffic of one model.

    Attributes:
        traffic: The recorded traffic.
        chosen: The fitted ladder of each kind of graphs, or of each axis; None if no device time
            was recorded.
        comparisons: Comparisons with the current ladders.
    """

    traffic: Traffic
    chosen: Mapping[str, Ladder | None]
    comparisons: Sequence[Comparison]

    @property
    def of_calls(self) -> bool:
        """Whether the model is called once."""
        return isinstance(self.traffic.ladders, CallLadders)

    @property
    def cost_today(self) -> float:
        """Seconds for padding and compilations on the current ladders."""
        return sum(one.demand.expected(one.today).cost for one in self.comparisons)

    @property
    def cost_fitted(self) -> float:
        """Seconds for padding and compilations on the fitted ladders."""
        return sum(one.demand.expected(one.fitted).cost for one in self.comparisons)

    @property
    def is_thin(self) -> bool:
        """Whether there is too little traffic for a reliable ladder."""
        traffic = self.traffic
        if isinstance(traffic.ladders, CallLadders):
            return joined_calls(traffic) < ENOUGH_REQUESTS
        # With an encoder, most prompts have one token: they need no prefill and are not recorded.
        inputs = traffic.prompts if traffic.of_generation.encoder is None else traffic.sources
        return min(sum(inputs.values()), sum(traffic.runs.values())) < ENOUGH_REQUESTS


def fit_traffic(
    traffic: Traffic,
    *,
    max_rungs: Mapping[GraphKind, int | None] | None = None,
    max_axis_rungs: int | None = None,
    horizon: float | None = None,
) -> Fit:
    """Fits the ladders that cost the least time in padding and compilations together.

    Args:
        traffic: The recorded traffic of a model.
        max_rungs: Maximum number of lengths of each kind of graphs; None as many as pay.
        max_axis_rungs: Maximum number of sizes of each axis of a function; None as many as pay.
        horizon: Hours that a worker uses its compiled graphs; None for the recorded time.
    """
    if isinstance(traffic.ladders, CallLadders):
        return _fit_axes(traffic, traffic.ladders, max_axis_rungs, horizon)
    return _fit_lengths(traffic, max_rungs or {}, horizon)


def joined_calls(traffic: Traffic) -> float:
    """Number of joined calls; each is counted once for each axis."""
    counts: defaultdict[str, float] = defaultdict(float)
    for (axis, _), count in traffic.sizes.items():
        counts[axis] += count
    return max(counts.values(), default=0.0)


def _fit_lengths(
    traffic: Traffic, max_rungs: Mapping[GraphKind, int | None], horizon: float | None
) -> Fit:
    ladders, factor = traffic.of_generation, _factor(traffic, horizon)
    chosen: dict[str, Ladder | None] = {}
    comparisons = []
    for kind in (GraphKind.ENCODE, GraphKind.PREFILL, GraphKind.DECODE):
        if (kind, 1) not in ladders.kinds:
            continue
        lanes = {beams: each.times(factor) for beams, each in demands(traffic, kind).items()}
        chosen[kind] = None
        if not lanes:
            continue
        fitted = fit_ladder(
            list(lanes.values()),
            maximum=ladders.lengths(kind).maximum,
            max_rungs=max_rungs.get(kind),
        )
        chosen[kind] = fitted
        comparisons += [
            Comparison(
                title=kind if beams == 1 else f"{kind}, {beams} beams",
                demand=demand,
                today=ladders.lengths(kind, beams),
                fitted=Ladder(tuple(beams * rung for rung in fitted.rungs)),
            )
            for beams, demand in lanes.items()
        ]
    return Fit(traffic=traffic, chosen=chosen, comparisons=comparisons)


def _fit_axes(
    traffic: Traffic, ladders: CallLadders, max_rungs: int | None, horizon: float | None
) -> Fit:
    found, factor = call_demands(traffic, ladders), _factor(traffic, horizon)
    chosen: dict[str, Ladder | None] = dict.fromkeys(ladders.padded)
    comparisons = []
    for axis, demand in found.items():
        demand, today = demand.times(factor), ladders.padded[axis]
        fitted = chosen[axis] = fit_ladder(
            [demand],
            maximum=today.maximum,
            max_rungs=max_rungs,
            # Lengths stay multiples; small batches need not be multiples.
            multiple=math.gcd(LENGTH_MULTIPLE, *today.rungs),
        )
        comparisons.append(Comparison(title=axis, demand=demand, today=today, fitted=fitted))
    return Fit(traffic=traffic, chosen=chosen, comparisons=comparisons)


def _factor(traffic: Traffic, horizon: float | None) -> float:
    """The factor from the recorded calls to those expected within the horizon."""
    return horizon * 3600 / traffic.seconds if horizon and traffic.seconds else 1.0
