"""Demand on the axes of a model that is called once, at the cost that was measured."""

import pytest

from harness.traffic import MODEL, TODAY, call
from shaperouter_service.routing.call_demand import call_demands
from shaperouter_service.routing.call_ladders import AxisLadder, CallLadders
from shaperouter_service.routing.ladder import Ladder
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.routing.traffic import SignatureTraffic, Traffic

BATCH, LENGTH = Ladder((1, 8)), Ladder((8, 64))
LADDERS = CallLadders(rows=BATCH, axes=(AxisLadder(name="length", ladder=LENGTH),))


def served(steps: float, seconds: float, *, compile_seconds: float = 0.0) -> SignatureTraffic:
    return SignatureTraffic(
        calls=steps,
        steps=steps,
        device_seconds=seconds,
        compiles=1 if compile_seconds else 0,
        compile_seconds=compile_seconds,
    )


def record(
    sizes: dict[tuple[str, int], float], signatures: dict[Signature, SignatureTraffic]
) -> Traffic:
    return Traffic(model=MODEL, ladders=LADDERS, as_of=TODAY, sizes=sizes, signatures=signatures)


def test_todays_ladders_are_expected_to_cost_what_was_measured() -> None:
    traffic = record(
        {("batch", 1): 30.0, ("batch", 3): 10.0, ("length", 5): 15.0, ("length", 20): 25.0},
        {call(1, 8): served(10, 1.0), call(1, 64): served(20, 6.0), call(8, 64): served(10, 9.0)},
    )
    found = call_demands(traffic, LADDERS)
    assert found["batch"].expected(BATCH).device_seconds == pytest.approx(16.0)
    assert found["length"].expected(LENGTH).device_seconds == pytest.approx(16.0)


def test_a_rung_costs_the_compilations_of_all_its_signatures() -> None:
    traffic = record(
        {("batch", 1): 10.0, ("length", 8): 10.0},
        {
            call(1, 8): served(10, 1.0, compile_seconds=2.0),
            call(8, 8): served(1, 1.0, compile_seconds=4.0),
        },
    )
    found = call_demands(traffic, LADDERS)
    assert found["batch"].compile_seconds == pytest.approx(3.0)
    assert found["length"].compile_seconds == pytest.approx(6.0)


def test_an_axis_without_sizes_asks_for_nothing() -> None:
    traffic = record({("batch", 1): 10.0}, {call(1, 8): served(10, 1.0)})
    assert call_demands(traffic, LADDERS).keys() == {"batch"}


def test_graphs_and_sizes_of_other_ladders_are_left_out() -> None:
    traffic = record(
        {("batch", 1): 10.0, ("batch", 16): 10.0},
        {call(1, 8): served(10, 1.0), call(16, 8): served(10, 50.0)},
    )
    demand = call_demands(traffic, LADDERS)["batch"]
    assert demand.calls.keys() == {1}
    assert demand.expected(BATCH).device_seconds == pytest.approx(1.0)


def test_an_axis_that_cannot_be_padded_has_no_demand() -> None:
    exact = LADDERS.without("length")
    signature = Signature(model=MODEL, kind=call(1, 8).kind, rows=1, length=1, exact=(5,))
    traffic = record({("batch", 1): 10.0}, {signature: served(10, 1.0)})
    assert call_demands(traffic, exact).keys() == {"batch"}
