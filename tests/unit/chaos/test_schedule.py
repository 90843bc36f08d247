"""Schedules of faults come from a seed alone."""

import itertools

from chaos.faults import CHANGES, LASTING, FaultKind
from chaos.schedule import GAP, Schedule


def drawn(seed: int, count: int = 400) -> Schedule:
    return Schedule.draw(seed, count=count, every=3.0)


def test_a_seed_gives_the_same_schedule_again_and_another_seed_another_one() -> None:
    assert drawn(7) == drawn(7)
    assert drawn(7).faults != drawn(8).faults


def test_a_long_schedule_has_every_kind_of_fault_at_the_asked_pace() -> None:
    schedule = drawn(1, 1000)
    assert {fault.kind for fault in schedule.faults} == set(FaultKind)
    pauses = [after.at - before.at for before, after in itertools.pairwise(schedule.faults)]
    assert min(pauses) >= 1.4
    assert max(pauses) <= 4.6
    for fault in schedule.faults:
        assert bool(fault.seconds) == (fault.kind in LASTING)


def test_a_calm_schedule_has_every_kind_of_change_and_no_fault() -> None:
    schedule = Schedule.draw(1, count=100, every=3.0, kinds=CHANGES)
    assert {fault.kind for fault in schedule.faults} == CHANGES


def test_a_schedule_is_the_same_after_it_was_written_and_read() -> None:
    assert Schedule.from_json(drawn(3).to_json()) == drawn(3)


def test_a_shortened_schedule_keeps_the_order_and_closes_the_gaps() -> None:
    schedule = drawn(2)
    kept = schedule.faults[5:9] + schedule.faults[300:302]
    shorter = schedule.keeping(kept)
    assert [fault.seed for fault in shorter.faults] == [fault.seed for fault in kept]
    times = [0.0, *(fault.at for fault in shorter.faults)]
    assert all(after - before < GAP + 0.01 for before, after in itertools.pairwise(times))
    assert shorter.seed == schedule.seed
