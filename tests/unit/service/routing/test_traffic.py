"""Traffic: counts grow, fade, and merge in any order."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.traffic import MODEL, TODAY, decode, prefill, traffics
from shaperouter_service.routing.costs import NOMINAL_COMPILE_SECONDS
from shaperouter_service.routing.decay import HALF_LIFE
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.routing.signatures import GraphKind
from shaperouter_service.routing.traffic import Traffic

# On a busy machine an example may take longer than the 0.2 s that hypothesis allows it.
UNTIMED = settings(deadline=None)

SMALL = Ladders.default(max_length=128, slots=1)
LARGE = Ladders.default(max_length=1024, slots=8)


def traffic(as_of: float = TODAY, ladders: Ladders = SMALL) -> Traffic:
    return Traffic(model=MODEL, ladders=ladders, as_of=as_of)


def numbers(record: Traffic) -> dict[Any, float]:
    """Every number of a record, by what it counts."""
    flat: dict[Any, float] = {"as_of": record.as_of, "seconds": record.seconds}
    flat |= {("prompt", tokens): count for tokens, count in record.prompts.items()}
    flat |= {("source", length): count for length, count in record.sources.items()}
    flat |= {("run", *key): count for key, count in record.runs.items()}
    for signature, counts in record.signatures.items():
        flat |= {(signature, name): value for name, value in vars(counts).items()}
    return flat


def nearly(record: Traffic) -> Any:
    """Equal to the same numbers, summed in another order."""
    return pytest.approx(numbers(record), rel=1e-9, abs=1e-9)


@UNTIMED
@given(one=traffics(), other=traffics())
def test_two_records_merge_in_either_order(one: Traffic, other: Traffic) -> None:
    assert numbers(one.merged(other)) == nearly(other.merged(one))
    assert one.merged(other).ladders == other.merged(one).ladders


@UNTIMED
@given(one=traffics(), two=traffics(), three=traffics())
def test_three_records_merge_in_any_order(one: Traffic, two: Traffic, three: Traffic) -> None:
    left, right = one.merged(two).merged(three), one.merged(two.merged(three))
    assert numbers(left) == nearly(right)
    assert left.ladders == right.ladders


@UNTIMED
@given(one=traffics(), other=traffics())
def test_merging_loses_nothing_of_the_newer_record(one: Traffic, other: Traffic) -> None:
    newer = max(one, other, key=lambda record: record.as_of)
    merged = numbers(one.merged(other))
    assert all(merged[key] >= value for key, value in numbers(newer).items())


@UNTIMED
@given(one=traffics(), other=traffics())
def test_merging_changes_neither_record(one: Traffic, other: Traffic) -> None:
    before = numbers(one), numbers(other)
    one.merged(other)
    assert (numbers(one), numbers(other)) == before


@given(weeks=st.integers(0, 20))
def test_old_traffic_fades_by_half_in_each_half_life(weeks: int) -> None:
    old, new = traffic(TODAY - weeks * HALF_LIFE), traffic()
    for _ in range(1000):
        old.add_prompt(10)
        old.add_run(1, 20)
    old.of(prefill(1, 16)).device_seconds = 1000.0
    old.seconds = 1000.0
    merged = old.merged(new)
    left = pytest.approx(1000 / 2**weeks)
    assert merged.prompts == {10: left}
    assert merged.runs == {(1, 20): left}
    assert merged.of(prefill(1, 16)).device_seconds == left
    assert merged.seconds == left


def test_traffic_of_ages_ago_fades_to_nothing() -> None:
    old = traffic(0.0)
    old.add_prompt(10)
    assert old.merged(traffic()).prompts[10] == pytest.approx(0.0)


def test_means_outlast_decay() -> None:
    old = traffic(TODAY - 10 * HALF_LIFE)
    old.of(prefill(1, 16)).compiles = 2
    old.of(prefill(1, 16)).compile_seconds = 6.0
    assert old.merged(traffic()).compile_seconds(GraphKind.PREFILL) == pytest.approx(3.0)


def test_the_ladders_are_those_of_the_newer_record() -> None:
    old, new = traffic(TODAY - 1, SMALL), traffic(TODAY, LARGE)
    assert old.merged(new).ladders == new.merged(old).ladders == LARGE


def test_a_signature_was_last_used_when_either_record_says_so() -> None:
    old, new = traffic(TODAY - HALF_LIFE), traffic()
    old.of(prefill(1, 16)).last_used = 7.0
    new.of(prefill(1, 16)).last_used = 5.0
    assert old.merged(new).of(prefill(1, 16)).last_used == 7.0


def test_traffic_of_two_models_is_not_merged() -> None:
    other = Traffic(model="opt", ladders=SMALL, as_of=TODAY)
    with pytest.raises(ValueError, match=f"{MODEL} is not traffic of opt"):
        traffic().merged(other)


def test_prompts_and_runs_are_counted_by_their_exact_lengths() -> None:
    record = traffic()
    for tokens in (3, 5, 3):
        record.add_prompt(tokens)
    for beams, length in ((1, 20), (4, 20), (1, 20)):
        record.add_run(beams, length)
    assert record.prompts == {3: 2, 5: 1}
    assert record.runs == {(1, 20): 2, (4, 20): 1}


def test_the_time_to_compile_is_that_of_the_kind_or_of_any_or_assumed() -> None:
    record = traffic()
    assert record.compile_seconds(GraphKind.DECODE) == NOMINAL_COMPILE_SECONDS
    record.of(prefill(1, 16)).compiles = 1
    record.of(prefill(1, 16)).compile_seconds = 2.0
    assert record.compile_seconds(GraphKind.DECODE) == 2.0
    record.of(decode(1, 64)).compiles = 2
    record.of(decode(1, 64)).compile_seconds = 8.0
    assert record.compile_seconds(GraphKind.DECODE) == 4.0
