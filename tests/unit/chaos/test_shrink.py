"""Lists that fail are shortened."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from chaos.shrink import shrink


@given(st.integers(1, 40), st.sets(st.integers(0, 39), max_size=4))
def test_only_the_causes_are_left(count: int, causes: set[int]) -> None:
    causes = {cause for cause in causes if cause < count} or {0}
    found = shrink(range(count), causes.issubset, trials=10_000)
    assert found == sorted(causes)


def test_no_more_trials_are_made_than_allowed_and_what_is_left_fails() -> None:
    tried: list[Sequence[int]] = []

    def fails(items: Sequence[int]) -> bool:
        tried.append(items)
        return {3, 70} <= set(items)

    left = shrink(range(100), fails, trials=5)
    assert len(tried) == 5
    assert {3, 70} <= set(left)
    assert len(left) < 100
