"""Simulated machines: what calls cost beside others, and that turns wait for their calls."""

import dataclasses
from collections.abc import Callable, Sequence

import pytest

from .clock import Clock
from .costs import Contention, MeasuredCosts
from .host import Host, SharedHost

CONTENTION = Contention(
    machine="two cores",
    base_load=1.0,
    loads=[1.0, 2.0, 3.0],
    step_seconds=[0.010, 0.012, 0.020],
    way_loads=[0.0, 1.0],
    way_seconds=[[0.002, 0.004], [0.004, 0.010]],
)
COSTS = dataclasses.replace(MeasuredCosts.read(), contention=CONTENTION)


@pytest.mark.parametrize(
    ("load", "slowdown"), [(0.5, 1.0), (1.0, 1.0), (1.5, 1.1), (2.0, 1.2), (3.0, 2.0), (6.0, 4.0)]
)
def test_a_call_is_slowed_down_as_measured_and_beyond_that_in_proportion(
    load: float, slowdown: float
) -> None:
    assert CONTENTION.slowdown(load) == pytest.approx(slowdown)


def test_the_slowdown_is_relative_to_the_load_at_which_steps_were_measured() -> None:
    measured_beside_others = dataclasses.replace(CONTENTION, base_load=2.0)
    assert measured_beside_others.slowdown(2.0) == 1.0
    assert measured_beside_others.slowdown(1.0) == pytest.approx(1 / 1.2)


def test_a_higher_load_never_makes_calls_faster() -> None:
    noisy = dataclasses.replace(CONTENTION, step_seconds=[0.010, 0.009, 0.020])
    assert noisy.slowdown(2.0) == 1.0


@pytest.mark.parametrize(
    ("load", "share", "seconds"),
    [(0.0, 0.3, 0.002), (0.0, 0.6, 0.004), (0.5, 0.6, 0.007), (9.0, 0.99, 0.010)],
)
def test_the_way_of_a_request_is_drawn_from_what_was_measured_at_the_load(
    load: float, share: float, seconds: float
) -> None:
    assert CONTENTION.way(load, share) == pytest.approx(seconds)


def ends(host: Host, clock: Clock, calls: Sequence[tuple[float, float]]) -> list[float]:
    """When calls end, which begin at a time and have so much work, in seconds."""
    found = [0.0] * len(calls)

    def turn(index: int, seconds: float) -> Callable[[], None]:
        def compute() -> None:
            host.compute(seconds)
            found[index] = clock()

        return compute

    for index, (at, seconds) in enumerate(calls):
        work = turn(index, seconds)
        clock.at(at, lambda work=work: host.run(work))
    clock.run(until=100.0)
    return found


def test_calls_on_machines_of_their_own_do_not_disturb_each_other() -> None:
    clock = Clock()
    assert ends(Host(clock, COSTS), clock, [(1.0, 5.0), (2.0, 5.0)]) == [6.0, 7.0]


def test_a_lone_call_on_a_shared_machine_takes_its_time() -> None:
    clock = Clock()
    assert ends(SharedHost(clock, COSTS, 0.0), clock, [(1.0, 5.0)]) == pytest.approx([6.0])


def test_calls_are_slowed_down_only_while_they_are_beside_each_other() -> None:
    clock = Clock()
    found = ends(SharedHost(clock, COSTS, 0.0), clock, [(0.0, 10.0), (4.0, 1.0)])
    # The second takes 1.2 s, in which the first does 1 s of its work.
    assert found == pytest.approx([10.2, 5.2])


def test_other_processes_slow_calls_down() -> None:
    clock = Clock()
    assert ends(SharedHost(clock, COSTS, 0.5), clock, [(0.0, 10.0)]) == pytest.approx([11.0])


def test_a_turn_continues_after_its_call_and_tells_how_long_it_took() -> None:
    clock = Clock()
    host = SharedHost(clock, COSTS, 1.0)
    told: list[float] = []
    clock.at(0.0, lambda: host.run(lambda: told.extend([host.compute(1.0), host.compute(2.0)])))
    clock.run(until=10.0)
    assert told == pytest.approx([1.2, 2.4])


def test_an_error_of_a_turn_reaches_whoever_lets_time_pass() -> None:
    clock = Clock()
    host = SharedHost(clock, COSTS, 0.0)

    def fail() -> None:
        host.compute(1.0)
        raise LookupError("wrong")

    clock.at(0.0, lambda: host.run(fail))
    with pytest.raises(LookupError, match="wrong"):
        clock.run(until=10.0)
