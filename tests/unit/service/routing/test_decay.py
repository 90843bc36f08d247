"""Sums that fade: what happened lately counts more than what happened long ago."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shaperouter_service.routing.decay import HALF_LIFE, DecayingSum

PARTS = st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 10 * HALF_LIFE)), max_size=8)


def test_after_a_half_life_half_is_left() -> None:
    decaying = DecayingSum()
    decaying.add(3.0, 100.0)
    assert decaying.at(100.0) == 3.0
    assert decaying.at(100.0 + HALF_LIFE) == pytest.approx(1.5)


@given(PARTS)
def test_each_part_fades_by_itself(parts: list[tuple[float, float]]) -> None:
    decaying, times = DecayingSum(), list(itertools.accumulate(pause for _, pause in parts))
    for (amount, _), time in zip(parts, times, strict=True):
        decaying.add(amount, time)
    end = times[-1] if times else 0.0
    expected = sum(
        amount * 0.5 ** ((end - time) / HALF_LIFE)
        for (amount, _), time in zip(parts, times, strict=True)
    )
    assert decaying.at(end) == pytest.approx(expected)


def test_what_happens_seldom_never_adds_up() -> None:
    decaying = DecayingSum()
    for week in range(1000):
        decaying.add(1.0, week * HALF_LIFE)
    assert decaying.at(1000 * HALF_LIFE) == pytest.approx(1.0)
