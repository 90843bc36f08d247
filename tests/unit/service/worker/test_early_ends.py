"""What is to be expected of runs, by those that have ended."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shaperouter_service.worker.early_ends import EarlyEnds

ENDS = st.integers(1, 1024).flatmap(lambda most: st.tuples(st.integers(1, most), st.just(most)))


def test_as_long_as_nothing_is_known_all_tokens_are_expected() -> None:
    assert EarlyEnds().share == 1.0


def test_runs_are_expected_to_make_what_others_made() -> None:
    ends = EarlyEnds()
    for _ in range(100):
        ends.ended(8, 64)
    assert ends.share == pytest.approx(8 / 64)


def test_long_runs_count_for_as_many_tokens_as_they_may_make() -> None:
    ends = EarlyEnds()
    for _ in range(200):
        ends.ended(10, 10)
        ends.ended(90, 990)
    assert ends.share == pytest.approx(100 / 1000, rel=0.05)


def test_a_change_of_traffic_is_known_after_some_tens_of_runs() -> None:
    ends = EarlyEnds()
    for _ in range(1000):
        ends.ended(1, 100)
    for _ in range(100):
        ends.ended(100, 100)
    assert ends.share > 0.9


@given(st.lists(ENDS, min_size=1, max_size=50))
def test_something_and_never_more_than_all_is_expected(found: list[tuple[int, int]]) -> None:
    ends = EarlyEnds()
    for made, most in found:
        ends.ended(made, most)
    assert 0 < ends.share <= 1.0 + 1e-9
