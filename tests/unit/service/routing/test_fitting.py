"""Fitting: no ladder costs less."""

import itertools
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shaperouter_service.routing.fitting import Demand, Expected, fit_ladder
from shaperouter_service.routing.ladder import LENGTH_MULTIPLE, Ladder, chosen_ladder

MAXIMUM = 52

# Few enough for every ladder to be tried.
_COUNTS = st.integers(0, 20).map(float)
_SECONDS = st.integers(0, 20).map(float)


@st.composite
def demands(draw: st.DrawFn) -> Demand:
    beams = draw(st.sampled_from([1, 2, 4]))
    # Any cost that does not fall: steps of any height between one length and the next.
    rises = draw(
        st.lists(_SECONDS, min_size=beams * MAXIMUM + 1, max_size=beams * MAXIMUM + 1)
        | st.floats(0, 2).map(lambda slope: [1.0] + [slope] * beams * MAXIMUM)
    )
    seconds = list(itertools.accumulate(rises))
    return Demand(
        beams=beams,
        calls=draw(st.dictionaries(st.integers(1, beams * MAXIMUM), _COUNTS, max_size=8)),
        seconds=seconds.__getitem__,
        compile_seconds=draw(_SECONDS | st.floats(0, 1000)),
    )


# On a busy machine an example may take longer than the 0.2 s that hypothesis allows it.
UNTIMED = settings(deadline=None)

DEMANDS = st.lists(demands(), min_size=1, max_size=3)


def every_ladder(maximum: int, max_rungs: int) -> Iterator[Ladder]:
    inner = range(LENGTH_MULTIPLE, maximum, LENGTH_MULTIPLE)
    for rungs in range(min(max_rungs, len(inner) + 1)):
        for lengths in itertools.combinations(inner, rungs):
            yield Ladder((*lengths, maximum))


def cost(demands: Sequence[Demand], ladder: Ladder) -> float:
    """The cost of a ladder, in tokens."""
    return sum(
        demand.expected(Ladder(tuple(demand.beams * rung for rung in ladder.rungs))).cost
        for demand in demands
    )


def demand(
    calls: dict[int, float], *, compile_seconds: float = 0.0, beams: int = 1, slope: float = 1.0
) -> Demand:
    return Demand(
        beams=beams,
        calls=calls,
        seconds=lambda length: 1 + slope * length,
        compile_seconds=compile_seconds,
    )


@UNTIMED
@given(asked=DEMANDS, max_rungs=st.integers(1, 8))
def test_no_ladder_of_so_many_rungs_costs_less(asked: list[Demand], max_rungs: int) -> None:
    fitted = fit_ladder(asked, maximum=MAXIMUM, max_rungs=max_rungs)
    least = min(cost(asked, ladder) for ladder in every_ladder(MAXIMUM, max_rungs))
    assert len(fitted.rungs) <= max_rungs
    assert cost(asked, fitted) == pytest.approx(least, rel=1e-6, abs=1e-3)


@UNTIMED
@given(asked=DEMANDS)
def test_no_ladder_at_all_costs_less(asked: list[Demand]) -> None:
    fitted = fit_ladder(asked, maximum=MAXIMUM)
    least = min(cost(asked, ladder) for ladder in every_ladder(MAXIMUM, 8))
    assert cost(asked, fitted) == pytest.approx(least, rel=1e-6, abs=1e-3)


@UNTIMED
@given(asked=DEMANDS)
def test_more_rungs_never_cost_more(asked: list[Demand]) -> None:
    costs = [cost(asked, fit_ladder(asked, maximum=MAXIMUM, max_rungs=k)) for k in range(1, 8)]
    assert all(
        more <= fewer + 1e-3 or more == pytest.approx(fewer)
        for fewer, more in itertools.pairwise(costs)
    )


@UNTIMED
@given(asked=DEMANDS, maximum=st.integers(MAXIMUM, 200))
def test_a_fitted_ladder_is_one_that_can_be_chosen(asked: list[Demand], maximum: int) -> None:
    flat = [demand(dict(one.calls), beams=one.beams) for one in asked]
    fitted = fit_ladder(flat, maximum=maximum)
    assert chosen_ladder(fitted.rungs, maximum=maximum) == fitted


@given(
    lengths=st.dictionaries(st.integers(1, 400), st.floats(0.01, 1e6), min_size=1, max_size=30),
    cheap=st.floats(0, 10),
    dearer=st.floats(0, 1000),
)
def test_dearer_compilations_never_make_more_padding_pay(
    lengths: dict[int, float], cheap: float, dearer: float
) -> None:
    paddings = []
    for compile_seconds in (cheap, cheap + dearer):
        asked = demand(lengths, compile_seconds=compile_seconds)
        fitted = asked.expected(fit_ladder([asked], maximum=400))
        paddings.append(fitted.padding_seconds)
    assert paddings[0] <= paddings[1] * (1 + 1e-6) + 1e-6


@pytest.mark.parametrize(
    ("calls", "compile_seconds", "rungs"),
    [
        pytest.param({}, 1.0, (100,), id="nothing is asked"),
        pytest.param({100: 5.0}, 1.0, (100,), id="only the longest"),
        pytest.param({16: 5.0}, 1.0, (16, 100), id="one length"),
        pytest.param({13: 5.0}, 1.0, (16, 100), id="no multiple of 8"),
        pytest.param({97: 5.0}, 1.0, (100,), id="between the last multiple and the maximum"),
        pytest.param({16: 5.0, 64: 5.0}, 1.0, (16, 64, 100), id="two lengths apart"),
        pytest.param({16: 5.0, 24: 5.0}, 99.0, (24, 100), id="two that share a compilation"),
        pytest.param({16: 5.0, 24: 50.0}, 39.0, (16, 24, 100), id="two just worth their own"),
        pytest.param({16: 5.0, 24: 50.0}, 41.0, (24, 100), id="two just not"),
        pytest.param({16: 1e9, 24: 1e-9}, 1.0, (16, 100), id="one that is hardly asked"),
    ],
)
def test_fitted(calls: dict[int, float], compile_seconds: float, rungs: tuple[int, ...]) -> None:
    asked = demand(calls, compile_seconds=compile_seconds)
    assert fit_ladder([asked], maximum=100).rungs == rungs


def test_a_cost_that_does_not_grow_needs_one_rung() -> None:
    asked = demand({16: 0.1, 24: 0.2, 72: 0.3}, slope=0.0)
    assert fit_ladder([asked], maximum=100).rungs == (100,)


def test_the_rungs_of_beams_are_in_tokens() -> None:
    # 30 and 33 places of 4 beams are of 8 and 9 tokens.
    assert fit_ladder([demand({30: 1.0, 33: 1.0}, beams=4)], maximum=100).rungs == (8, 16, 100)


def test_what_a_ladder_is_expected_to_cost() -> None:
    asked = demand({10: 2.0, 16: 1.0, 40: 1.0}, compile_seconds=3.0)
    expected = asked.expected(Ladder((16, 24, 64)))
    assert expected == Expected(
        device_seconds=3 * 17.0 + 65.0, padding_seconds=2 * 6.0 + 24.0, compile_seconds=6.0
    )
    assert expected.cost == 42.0
    assert expected.padding_share == pytest.approx(36 / 116)


@pytest.mark.parametrize("calls", [{}, {8: 0.0}])
def test_nothing_costs_nothing(calls: dict[int, float]) -> None:
    expected = demand(calls, compile_seconds=3.0).expected(Ladder((16, 24)))
    assert (expected.cost, expected.padding_share) == (0.0, 0.0)
