"""The forecast of when graphs will be ready follows the times that others have taken."""

import pytest

from shaperouter_service.routing.forecast import OVERDUE, Forecast


def test_before_any_graph_is_made_estimates_are_believed() -> None:
    left = Forecast(1).left({"a": (10.0, 4.0)}, {"b": 5.0, "c": 1.0})
    assert left == {"a": 6.0, "b": 11.0, "c": 12.0}


def test_threads_make_graphs_side_by_side() -> None:
    left = Forecast(2).left({"a": (10.0, 4.0)}, {"b": 5.0, "c": 1.0, "d": 3.0})
    # The thread that is free takes b, and then c; a's takes d.
    assert left == {"a": 6.0, "b": 5.0, "c": 6.0, "d": 9.0}


def test_graphs_that_are_loaded_take_a_fraction_of_an_estimate() -> None:
    forecast = Forecast(1)
    for _ in range(4):
        forecast.record(estimate=20.0, seconds=0.2)
    assert forecast.left({}, dict.fromkeys("abc", 20.0))["c"] == pytest.approx(0.6)


def test_what_takes_longer_than_others_did_takes_a_little_longer_still() -> None:
    assert Forecast(1).left({"a": (10.0, 60.0)}, {}) == {"a": 10.0 * OVERDUE}


def test_nothing_on_the_way_is_nothing_left() -> None:
    assert Forecast(1).left({}, {}) == {}
