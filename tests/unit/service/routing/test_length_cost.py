"""Costs by length: through what was measured, and never falling."""

import itertools
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shaperouter_service.routing.length_cost import (
    POSITIONS_LIKE_WEIGHTS,
    LengthCost,
    MeasuredLength,
    decode_shape,
    prefill_shape,
)

Shape = Callable[[int], float]


def measured(*points: tuple[int, float], calls: float = 1.0) -> list[MeasuredLength]:
    return [
        MeasuredLength(length=length, seconds=seconds, calls=calls) for length, seconds in points
    ]


POINTS = st.dictionaries(
    st.integers(1, 4096), st.tuples(st.floats(1e-4, 10), st.floats(1, 1e6)), max_size=10
).map(
    lambda points: [
        MeasuredLength(length=length, seconds=seconds, calls=calls)
        for length, (seconds, calls) in points.items()
    ]
)
SHAPES = st.sampled_from([decode_shape, prefill_shape(128)])


@given(points=POINTS, shape=SHAPES, lengths=st.lists(st.integers(1, 8192), min_size=2))
def test_the_cost_never_falls_with_the_length(
    points: list[MeasuredLength], shape: Shape, lengths: list[int]
) -> None:
    cost = LengthCost(points, shape)
    costs = [cost(length) for length in sorted(lengths)]
    assert all(low <= high * (1 + 1e-9) for low, high in itertools.pairwise(costs))


@given(points=POINTS, shape=SHAPES)
def test_noise_is_evened_out_without_changing_the_sum(
    points: list[MeasuredLength], shape: Shape
) -> None:
    cost = LengthCost(points, shape)
    fitted = sum(point.calls * cost(point.length) for point in points)
    assert fitted == pytest.approx(sum(point.calls * point.seconds for point in points))


def test_a_rising_cost_goes_through_what_was_measured_and_straight_between() -> None:
    cost = LengthCost(measured((64, 1.0), (128, 2.0), (256, 2.5)), decode_shape)
    assert [cost(length) for length in (64, 96, 128, 192, 256)] == [1.0, 1.5, 2.0, 2.25, 2.5]


def test_a_falling_cost_is_the_mean_of_the_neighbours_weighted_by_calls() -> None:
    points = [
        MeasuredLength(length=64, seconds=4.0, calls=1),
        MeasuredLength(length=128, seconds=1.0, calls=3),
        MeasuredLength(length=256, seconds=8.0, calls=1),
    ]
    cost = LengthCost(points, decode_shape)
    assert [cost(64), cost(128), cost(256)] == [1.75, 1.75, 8.0]


def test_beyond_what_was_measured_the_cost_grows_as_the_shape_does() -> None:
    cost = LengthCost(measured((32, 3.0), (64, 5.0)), float)
    assert cost(16) == 1.5
    assert cost(128) == 10.0


def test_one_measurement_gives_the_shape_its_size() -> None:
    cost = LengthCost(measured((POSITIONS_LIKE_WEIGHTS, 4.0)), decode_shape)
    assert cost(2 * POSITIONS_LIKE_WEIGHTS) == 6.0


def test_without_measurements_the_cost_is_the_shape() -> None:
    assert LengthCost([], decode_shape)(POSITIONS_LIKE_WEIGHTS) == 2.0


def test_prefill_computes_each_token_of_a_piece() -> None:
    shape = prefill_shape(128)
    assert shape(64) / shape(32) == pytest.approx(2.0, rel=0.01)


def test_beyond_a_piece_prefill_only_attends_to_more() -> None:
    shape = prefill_shape(128)
    assert shape(1024) / shape(512) == decode_shape(1024) / decode_shape(512)
