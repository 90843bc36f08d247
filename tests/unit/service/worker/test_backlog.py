"""The lengths of runs are estimated from those that have ended."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shaperouter_service.worker.backlog import LONGEST_EXPECTED, LengthEstimator

ENDS = st.integers(1, 1024).flatmap(lambda limit: st.tuples(st.integers(1, limit), st.just(limit)))


def test_before_any_run_has_ended_all_tokens_are_expected_up_to_a_number() -> None:
    assert LengthEstimator().expected([64, 8]) == 72
    assert LengthEstimator().expected([64, 1024]) == 64 + LONGEST_EXPECTED


def test_runs_are_expected_to_generate_what_others_did() -> None:
    estimator = LengthEstimator()
    for _ in range(100):
        estimator.observe(8, 64)
    assert estimator.expected([32, 32, 16]) == 10


def test_runs_are_weighted_by_their_limits() -> None:
    estimator = LengthEstimator()
    for _ in range(200):
        estimator.observe(10, 10)
        estimator.observe(90, 990)
    assert estimator.expected([10_000]) == pytest.approx(1000, rel=0.05)


def test_the_estimate_follows_a_change_of_traffic_within_100_runs() -> None:
    estimator = LengthEstimator()
    for _ in range(1000):
        estimator.observe(1, 100)
    for _ in range(100):
        estimator.observe(100, 100)
    assert estimator.expected([100]) > 90


@given(st.lists(ENDS, min_size=1, max_size=50))
def test_some_tokens_are_expected_and_never_more_than_are_left(ends: list[tuple[int, int]]) -> None:
    estimator = LengthEstimator()
    for generated, limit in ends:
        estimator.observe(generated, limit)
    assert 0 < estimator.expected([100]) <= 100
