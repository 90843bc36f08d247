"""Demand on the axes of a model that is called once, from recorded traffic."""

from collections.abc import Iterator

from shaperouter_service.routing.call_ladders import CallLadders
from shaperouter_service.routing.costs import CALL_ELEMENTS
from shaperouter_service.routing.fitting import Demand
from shaperouter_service.routing.length_cost import LengthCost, MeasuredLength
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.routing.traffic import SignatureTraffic, Traffic


def call_demands(traffic: Traffic, ladders: CallLadders) -> dict[str, Demand]:
    """Demand on the ladder of each axis that was measured.

    Each axis is seen by itself, as if calls of all its sizes had the same mixture of sizes along
    the other axes.

    Args:
        traffic: The record.
        ladders: The ladders of its model.
    """
    found = ((name, _demand(traffic, ladders, name)) for name in ladders.padded)
    return {name: demand for name, demand in found if demand is not None}


def _demand(traffic: Traffic, ladders: CallLadders, name: str) -> Demand | None:
    """Builds a demand that costs as much on today's ladder as was measured."""
    graphs, today = list(_graphs(traffic, ladders, name)), ladders.padded[name]
    steps = sum(counts.steps for _, _, counts in graphs)
    # Sizes above the last rung are of other ladders, which the model once had.
    calls = {
        size: count
        for (axis, size), count in traffic.sizes.items()
        if axis == name and size <= today.maximum
    }
    if not steps or not any(calls.values()):
        return None
    # Elements of a call for each step along the axis.
    others = sum(key.elements / size * counts.steps for size, key, counts in graphs) / steps
    seconds = LengthCost(
        _measured(graphs),
        lambda size: 1 + size * others / CALL_ELEMENTS,
    )
    measured = sum(counts.device_seconds for _, _, counts in graphs)
    modelled = sum(count * seconds(today.cover(size)) for size, count in calls.items())
    compiles = sum(counts.compiles for _, _, counts in graphs)
    each = (
        sum(counts.compile_seconds for _, _, counts in graphs) / compiles
        if compiles
        else traffic.compile_seconds(graphs[0][1].kind)
    )
    return Demand(
        beams=1,
        calls={size: count * measured / modelled for size, count in calls.items()},
        seconds=seconds,
        compile_seconds=each * len(graphs) / len({size for size, _, _ in graphs}),
    )


def _graphs(
    traffic: Traffic, ladders: CallLadders, name: str
) -> Iterator[tuple[int, Signature, SignatureTraffic]]:
    """Size along an axis, signature and counts of each graph that ladders still have."""
    for signature, counts in traffic.signatures.items():
        if ladders.has(signature):
            yield ladders.by_axis(ladders.sizes(signature))[name], signature, counts


def _measured(
    graphs: list[tuple[int, Signature, SignatureTraffic]],
) -> Iterator[MeasuredLength]:
    """The mean time of a call of each size."""
    totals: dict[int, tuple[float, float]] = {}
    for size, _, counts in graphs:
        steps, seconds = totals.get(size, (0.0, 0.0))
        totals[size] = steps + counts.steps, seconds + counts.device_seconds
    for size, (steps, seconds) in totals.items():
        if steps:
            yield MeasuredLength(length=size, seconds=seconds / steps, calls=steps)
