"""Demand on a model's ladders, from recorded traffic."""

import math
from collections.abc import Callable, Mapping

from shaperouter_service.routing.fitting import Demand
from shaperouter_service.routing.length_cost import (
    LengthCost,
    MeasuredLength,
    decode_shape,
    prefill_shape,
)
from shaperouter_service.routing.signatures import GraphKind
from shaperouter_service.routing.traffic import Traffic


def demands(traffic: Traffic, kind: GraphKind) -> dict[int, Demand]:
    """Demand on the ladders of encode, prefill or decode, for each measured beam width.

    Assumes that all runs of a width take equally many steps.
    """
    found = {}
    for each, beams in traffic.of_generation.kinds:
        if each is kind and (demand := _demand(traffic, kind, beams)):
            found[beams] = demand
    return found


def _calls(
    traffic: Traffic, kind: GraphKind, beams: int
) -> tuple[Mapping[int, float], Callable[[int], float]]:
    """The number of calls by length, and how the cost of a call grows with its length."""
    if kind is GraphKind.ENCODE:
        # One call reads a whole source.
        return traffic.sources, prefill_shape(traffic.of_generation.lengths(kind).maximum)
    if kind is GraphKind.PREFILL:
        # A prompt takes as many calls as it has pieces, on every rung.
        piece = traffic.of_generation.prefill_piece
        pieces = {tokens: math.ceil(tokens / piece) for tokens in traffic.prompts}
        calls = {tokens: count * pieces[tokens] for tokens, count in traffic.prompts.items()}
        return calls, prefill_shape(piece)
    runs = {length: count for (width, length), count in traffic.runs.items() if width == beams}
    return runs, decode_shape


def _demand(traffic: Traffic, kind: GraphKind, beams: int) -> Demand | None:
    """Builds a demand that costs as much on today's ladder as was measured.

    The graphs of one row show how a call's cost grows with its length. They do not show its average
    cost: rows share calls, runs end early, and larger graphs serve while the tight one is not
    ready. The device time of all graphs shows that, and the number of calls is scaled to it.
    """
    calls, shape = _calls(traffic, kind, beams)
    graphs = {
        signature: counts
        for signature, counts in traffic.signatures.items()
        if signature.kind is kind and signature.beams == beams
    }
    seconds = LengthCost(
        (
            MeasuredLength(
                length=signature.length,
                seconds=counts.device_seconds / counts.steps,
                calls=counts.steps,
            )
            for signature, counts in graphs.items()
            if signature.rows == 1 and counts.steps
        ),
        shape,
    )
    today = traffic.of_generation.lengths(kind, beams)
    # Longer lengths belong to another model that once had this name.
    calls = {length: count for length, count in calls.items() if length <= today.maximum}
    measured = sum(counts.device_seconds for counts in graphs.values())
    modelled = sum(count * seconds(today.cover(length)) for length, count in calls.items())
    if not measured or not modelled:
        return None
    compiles = sum(counts.compiles for counts in graphs.values())
    each = (
        sum(counts.compile_seconds for counts in graphs.values()) / compiles
        if compiles
        else traffic.compile_seconds(kind)
    )
    rungs = len({signature.length for signature in graphs})
    return Demand(
        beams=beams,
        calls={length: count * measured / modelled for length, count in calls.items()},
        seconds=seconds,
        compile_seconds=each * len(graphs) / rungs,
    )
