"""The simulation's own logic, and that it tells the same story each time."""

import dataclasses
import math

import pytest

from .clock import Clock
from .costs import MeasuredCosts
from .fleet import Autoscaler, Setting, simulate
from .scenarios import routers_for
from .traffic import Traffic

COSTS = MeasuredCosts.read()
LIGHT = Traffic(rate=4.0, seconds=8.0)


def setting(**changes: object) -> Setting:
    return dataclasses.replace(Setting(costs=COSTS, workers=2, traffic=LIGHT), **changes)


def test_actions_run_in_the_order_of_their_times_and_see_no_time_that_others_spend() -> None:
    clock, told = Clock(), []

    def spend() -> None:
        clock.elapse(5.0)
        told.append(("spent", clock()))

    clock.at(2.0, lambda: told.append(("late", clock())))
    clock.at(1.0, spend)
    clock.run(until=3.0)
    assert told == [("spent", 6.0), ("late", 2.0)]
    assert clock() == 3.0


def test_a_simulation_repeats_itself() -> None:
    first, second = (simulate(setting(is_warm=False)) for _ in range(2))
    assert [outcome.end for outcome in first.outcomes] == [
        outcome.end for outcome in second.outcomes
    ]


def test_a_lone_request_takes_what_its_calls_take() -> None:
    lone = Traffic(rate=0.2, seconds=20.0, sigma=0.0, median_prompt=16, new_tokens=(17, 17))
    result = simulate(setting(workers=1, traffic=lone))
    device = COSTS.device()
    ladders = COSTS.ladders()
    decode = ladders.decode(COSTS.model, rows=1, length=32, beams=1)
    prefill = ladders.prefill(COSTS.model, rows=1, prompt_tokens=16)
    # One call reads, one chooses the first token, and one makes the other 16.
    calls = device.step_seconds(prefill) + COSTS.first_token_seconds
    calls += 16 * device.step_seconds(decode) + 3 * COSTS.call_seconds
    # The first requests are answered step by step, until the worker knows how long a step takes.
    assert result.outcomes[-1].end == pytest.approx(calls + COSTS.way(0.5), rel=0.1)


def test_a_death_loses_no_request() -> None:
    result = simulate(setting(kills=(1.0, 3.0), traffic=dataclasses.replace(LIGHT, rate=20.0)))
    assert result.lost == result.refused == 0
    assert any(outcome.losses for outcome in result.outcomes)


def test_more_callers_than_slots_make_more_answers_with_more_workers() -> None:
    one, two = (simulate(setting(workers=workers, callers=20)) for workers in (1, 2))
    assert two.rate == pytest.approx(2 * one.rate, rel=0.2)


@pytest.mark.parametrize(
    ("workers", "requests", "wanted"), [(2, 10, 2), (2, 40, 8), (2, 80, 10), (4, 0, 1), (4, 21, 4)]
)
def test_the_autoscaler_follows_kubernetes_rule(workers: int, requests: int, wanted: int) -> None:
    assert Autoscaler(target=5.0, most=10).wanted(workers, requests) == wanted


def test_a_router_that_watches_more_workers_has_less_time_for_requests() -> None:
    few, many = (
        simulate(setting(workers=workers, traffic=dataclasses.replace(LIGHT, rate=10.0)))
        for workers in (2, 8)
    )
    assert many.router_share > few.router_share
    assert math.isfinite(many.first_token(95))


def test_routers_are_enough_for_the_requests_and_refused_for_too_many_workers() -> None:
    assert routers_for(COSTS, workers=1, rate=1.0) == 1
    assert routers_for(COSTS, workers=10, rate=1000.0) > routers_for(COSTS, workers=10, rate=100.0)
    with pytest.raises(ValueError, match="more than one router can watch"):
        routers_for(COSTS, workers=1000, rate=1.0)
