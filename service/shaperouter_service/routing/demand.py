"""Demand on a model's ladders, from recorded traffic."""

import math
from collections.abc import Callable, Mapping

from shaperouter_service.routing.fitting import Demand
from shaperouter_service.routing.ladder import Ladder
from shaperouter_service.routing.length_cost import (
    LengthCost,
    MeasuredLength,
    decode_shape,
    prefill_shape,
)
from shaperouter_service.routing.signatures import GraphKind
from shaperouter_service.routing.traffic import Traffic


def prefill_demand(traffic: Traffic) -> Demand | None:
    """Demand of prompts on the prefill ladder; None if no prompt was measured.

    A prompt takes as many calls as it has pieces, on every rung.
    """
    ladders = traffic.ladders
    calls = {
        tokens: count * math.ceil(tokens / ladders.prefill_piece)
        for tokens, count in traffic.prompts.items()
    }
    shape = prefill_shape(ladders.prefill_piece)
    return _demand(
        traffic,
        GraphKind.PREFILL,
        beams=1,
        calls=calls,
        today=ladders.prefill_lengths,
        shape=shape,
    )


def encode_demand(traffic: Traffic) -> Demand | None:
    """Demand of sources on the encode ladder; None if no source was measured."""
    if traffic.ladders.encoder is None:
        return None
    today = traffic.ladders.encoder.lengths
    return _demand(
        traffic,
        GraphKind.ENCODE,
        beams=1,
        calls=traffic.sources,
        today=today,
        # One call reads a whole source.
        shape=prefill_shape(today.maximum),
    )


def decode_demands(traffic: Traffic) -> dict[int, Demand]:
    """Demand of runs on the decode ladder, for each measured beam width.

    Assumes that all runs of a width take equally many steps.
    """
    demands = {}
    for lane in traffic.ladders.lanes:
        calls = {
            length: count for (beams, length), count in traffic.runs.items() if beams == lane.beams
        }
        demand = _demand(
            traffic,
            GraphKind.DECODE,
            beams=lane.beams,
            calls=calls,
            today=lane.decode_lengths,
            shape=decode_shape,
        )
        if demand:
            demands[lane.beams] = demand
    return demands


def _demand(
    traffic: Traffic,
    kind: GraphKind,
    *,
    beams: int,
    calls: Mapping[int, float],
    today: Ladder,
    shape: Callable[[int], float],
) -> Demand | None:
    """Builds a demand that costs as much on today's ladder as was measured.

    The graphs of one row show how a call's cost grows with its length. They do not show its average
    cost: rows share calls, runs end early, and larger graphs serve while the tight one is not
    ready. The device time of all graphs shows that, and the number of calls is scaled to it.
    """
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
