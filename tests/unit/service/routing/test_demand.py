"""Demand: what traffic asks of ladders, at the cost that was measured."""

import pytest

from harness.traffic import MODEL, TODAY, decode, encode, prefill
from shaperouter_service.routing.costs import NOMINAL_COMPILE_SECONDS
from shaperouter_service.routing.demand import demands
from shaperouter_service.routing.ladder import Ladder
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.routing.signatures import GraphKind, Signature
from shaperouter_service.routing.traffic import SignatureTraffic, Traffic

# Prefill 16, 24, 32, 48, 64, 88, 128, 256, 512, 1024; decode 64, 128, 256, 512, 1024.
LADDERS = Ladders.default(max_length=1024, slots=8)


def record(
    *,
    prompts: dict[int, float] | None = None,
    runs: dict[tuple[int, int], float] | None = None,
    signatures: dict[Signature, SignatureTraffic],
) -> Traffic:
    return Traffic(
        model=MODEL,
        ladders=LADDERS,
        as_of=TODAY,
        prompts=prompts or {},
        runs=runs or {},
        signatures=signatures,
    )


def served(steps: float, seconds: float, *, compile_seconds: float = 0.0) -> SignatureTraffic:
    return SignatureTraffic(
        calls=steps,
        steps=steps,
        device_seconds=seconds,
        compiles=1 if compile_seconds else 0,
        compile_seconds=compile_seconds,
    )


def test_todays_ladder_is_expected_to_cost_what_was_measured() -> None:
    traffic = record(
        prompts={10: 50.0, 100: 20.0, 700: 3.0},
        # Half of the prompts were read in pairs: fewer calls than prompts.
        signatures={
            prefill(1, 16): served(10, 1.0),
            prefill(2, 16): served(20, 3.0),
            prefill(1, 128): served(20, 9.0),
            prefill(1, 1024): served(18, 12.0),
        },
    )
    demand = demands(traffic, GraphKind.PREFILL).get(1)
    assert demand is not None
    assert demand.expected(LADDERS.prefill_lengths).device_seconds == pytest.approx(25.0)


def test_sources_are_expected_to_cost_what_was_measured() -> None:
    ladders = Ladders.default(max_length=128, slots=8, max_source_length=512)
    traffic = Traffic(
        model=MODEL,
        ladders=ladders,
        as_of=TODAY,
        sources={10: 50.0, 300: 20.0},
        signatures={encode(1, 16): served(50, 1.0), encode(1, 344): served(20, 9.0)},
    )
    demand = demands(traffic, GraphKind.ENCODE).get(1)
    assert demand is not None
    assert demand.expected(ladders.encoder.lengths).device_seconds == pytest.approx(10.0)


def test_a_model_without_an_encoder_asks_nothing_of_its_ladder() -> None:
    traffic = record(signatures={prefill(1, 16): served(1, 1.0)})
    assert demands(traffic, GraphKind.ENCODE) == {}


def test_the_cost_of_a_length_is_told_by_graphs_of_one_row() -> None:
    traffic = record(
        prompts={10: 1.0},
        signatures={
            prefill(1, 16): served(10, 1.0),
            prefill(8, 16): served(10, 99.0),
            prefill(1, 32): served(10, 3.0),
        },
    )
    demand = demands(traffic, GraphKind.PREFILL).get(1)
    assert demand is not None
    assert [demand.seconds(length) for length in (16, 24, 32)] == pytest.approx([0.1, 0.2, 0.3])


def test_a_long_prompt_takes_a_call_for_each_piece() -> None:
    traffic = record(
        prompts={100: 1.0, 129: 1.0, 300: 1.0}, signatures={prefill(1, 16): served(1, 1.0)}
    )
    demand = demands(traffic, GraphKind.PREFILL).get(1)
    assert demand is not None
    once = demand.calls[100]
    assert demand.calls == pytest.approx({100: once, 129: 2 * once, 300: 3 * once})


def test_each_beam_width_has_a_demand_of_its_own() -> None:
    traffic = record(
        runs={(1, 100): 4.0, (1, 200): 1.0, (4, 300): 2.0},
        signatures={
            decode(1, 128): served(100, 3.0),
            decode(2, 256): served(50, 2.0),
            decode(1, 512, beams=4): served(100, 10.0),
        },
    )
    found = demands(traffic, GraphKind.DECODE)
    assert {beams: demand.beams for beams, demand in found.items()} == {1: 1, 4: 4}
    for beams, seconds in ((1, 5.0), (4, 10.0)):
        today = LADDERS.lane(beams).decode_lengths
        assert found[beams].expected(today).device_seconds == pytest.approx(seconds)


def test_a_rung_costs_the_compilations_of_all_its_signatures() -> None:
    traffic = record(
        runs={(1, 100): 1.0},
        signatures={
            decode(1, 128): served(1, 1.0, compile_seconds=2.0),
            decode(2, 128): served(1, 1.0, compile_seconds=4.0),
            decode(4, 128): served(1, 1.0),
            decode(1, 256): served(1, 1.0),
        },
    )
    # Two signatures a rung on average, three seconds each.
    assert demands(traffic, GraphKind.DECODE)[1].compile_seconds == pytest.approx(6.0)


def test_graphs_of_other_widths_do_not_count_where_some_of_the_own_were_compiled() -> None:
    traffic = record(
        runs={(1, 100): 1.0, (4, 100): 1.0, (8, 100): 1.0},
        signatures={
            decode(1, 128): served(1, 1.0, compile_seconds=2.0),
            decode(1, 128, beams=4): served(1, 1.0, compile_seconds=6.0),
            decode(1, 128, beams=8): served(1, 1.0),
        },
    )
    found = demands(traffic, GraphKind.DECODE)
    each = {beams: demand.compile_seconds for beams, demand in found.items()}
    assert each == {1: 2.0, 4: 6.0, 8: 4.0}


def test_where_nothing_was_compiled_a_time_is_assumed() -> None:
    traffic = record(prompts={10: 1.0}, signatures={prefill(1, 16): served(1, 1.0)})
    demand = demands(traffic, GraphKind.PREFILL).get(1)
    assert demand is not None
    assert demand.compile_seconds == NOMINAL_COMPILE_SECONDS


def test_what_was_never_measured_asks_for_nothing() -> None:
    asked = {prefill(1, 16): SignatureTraffic(asked=5)}
    assert demands(record(prompts={10: 5.0}, signatures=asked), GraphKind.PREFILL) == {}
    assert demands(record(runs={(1, 20): 5.0}, signatures={}), GraphKind.DECODE) == {}


def test_device_time_without_prompts_asks_for_nothing() -> None:
    traffic = record(signatures={prefill(1, 16): served(1, 1.0)})
    assert demands(traffic, GraphKind.PREFILL) == {}


def test_lengths_that_the_model_cannot_have_are_left_out() -> None:
    traffic = record(
        prompts={10: 1.0, 1025: 1.0},
        runs={(1, 10): 1.0, (1, 2000): 1.0},
        signatures={prefill(1, 16): served(1, 1.0), decode(1, 64): served(1, 1.0)},
    )
    demand = demands(traffic, GraphKind.PREFILL).get(1)
    assert demand is not None
    assert list(demand.calls) == [10]
    assert list(demands(traffic, GraphKind.DECODE)[1].calls) == [10]


def test_a_mean_weighs_what_was_measured_often() -> None:
    """If costs seem to fall, the majority of calls decides."""
    traffic = record(
        prompts={10: 1.0},
        signatures={prefill(1, 16): served(1, 9.0), prefill(1, 32): served(9, 9.0)},
    )
    demand = demands(traffic, GraphKind.PREFILL).get(1)
    assert demand is not None
    assert demand.seconds(16) == demand.seconds(32) == pytest.approx(1.8)
    assert demand.expected(Ladder((16, 32))).padding_seconds >= 0
