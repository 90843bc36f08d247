"""Growth is found where it is, and not in noise."""

import numpy as np
import pytest

from harness.trends import FEWEST, means, trend, trend_table

TIMES = np.arange(200) / 10


def test_growth_is_measured_within_its_margin() -> None:
    noise = np.random.default_rng(0).standard_normal(len(TIMES))
    found = trend(TIMES, 50 + 0.7 * TIMES + noise)
    assert found.grows
    assert abs(found.slope - 0.7) < found.margin < 0.1


# Independent noise, and a walk that tends back to its middle.
@pytest.mark.parametrize("correlation", [0.0, 0.6])
def test_noise_seldom_looks_like_growth(correlation: float) -> None:
    source = np.random.default_rng(1)
    found = 0
    for _ in range(400):
        noise = source.standard_normal(len(TIMES))
        for index in range(1, len(noise)):
            noise[index] += correlation * noise[index - 1]
        found += trend(TIMES, 100 + noise).grows
    # A fortieth is expected: half of the confidence's remainder.
    assert found < 400 * 0.06


def test_a_constant_has_no_trend_and_no_margin() -> None:
    found = trend(TIMES, np.full(len(TIMES), 7.0))
    assert (found.mean, found.slope, found.margin, found.grows) == (7.0, 0.0, 0.0, False)


def test_few_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 10 samples are needed, got 9"):
        trend(TIMES[: FEWEST - 1], TIMES[: FEWEST - 1])


def test_a_table_shows_what_grows_after_the_warm_up() -> None:
    filling = np.minimum(TIMES, 5.0)
    table = trend_table(TIMES, {"fills once": filling, "leaks": 3.0 * TIMES})
    assert table is not None
    assert list(table.columns[3].cells) == ["none found", "grows"]
    assert trend_table(TIMES[:FEWEST], {"too few": TIMES[:FEWEST]}) is None


def test_means_of_successive_values_leave_out_the_rest() -> None:
    assert means([1, 3, 5, 7, 100], 2) == [2.0, 6.0]
