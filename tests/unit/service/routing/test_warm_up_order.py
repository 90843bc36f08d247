"""Worth: what is made ready first, by what it did before."""

import pytest

from harness.traffic import TODAY, decode, prefill
from shaperouter_service.routing.decay import HALF_LIFE
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.routing.traffic import SignatureTraffic, Traffic
from shaperouter_service.routing.warm_up_order import warm_up_order

LADDERS = Ladders.default(max_length=1024, slots=8)


def served(
    device_seconds: float = 0.0,
    *,
    missed: float = 0.0,
    compile_seconds: float = 1.0,
    last_used: float = TODAY,
) -> SignatureTraffic:
    return SignatureTraffic(
        device_seconds=device_seconds,
        missed_seconds=missed,
        compiles=1,
        compile_seconds=compile_seconds,
        last_used=last_used,
    )


def record(
    signatures: dict[Signature, SignatureTraffic], *, model: str = "gpt2", as_of: float = TODAY
) -> Traffic:
    return Traffic(model=model, ladders=LADDERS, as_of=as_of, signatures=signatures)


def order(*records: Traffic, ladders: Ladders = LADDERS, limit: int = 100) -> list[Signature]:
    models = {traffic.model: ladders for traffic in records}
    return warm_up_order(records, models, limit=limit)


A, B, C = prefill(1, 16), decode(1, 64), decode(4, 256)


@pytest.mark.parametrize(
    "more_worth",
    [
        pytest.param(served(11), id="it served for longer"),
        pytest.param(served(missed=11), id="it was missed for longer"),
        pytest.param(served(6, missed=5), id="it served and was missed for longer together"),
        pytest.param(served(1, compile_seconds=0.05), id="it is compiled sooner"),
        pytest.param(served(10, last_used=TODAY + 1), id="it served later"),
    ],
)
def test_a_signature_goes_first_when(more_worth: SignatureTraffic) -> None:
    assert order(record({A: served(10), B: more_worth})) == [B, A]
    assert order(record({B: served(10), A: more_worth})) == [A, B]


def test_of_two_models_the_one_used_recently_goes_first() -> None:
    old = record({A: served(10)}, as_of=TODAY - HALF_LIFE)
    other = decode(1, 64, model="opt")
    new = record({other: served(6)}, model="opt")
    assert order(old, new) == [other, A]


def test_no_more_than_the_limit_are_returned() -> None:
    traffic = record({A: served(1), B: served(3), C: served(2)})
    assert order(traffic, limit=2) == [B, C]


def test_what_nobody_used_or_missed_is_not_made_ready() -> None:
    assert order(record({A: SignatureTraffic(asked=3), B: served(1)})) == [B]


def test_without_records_there_is_nothing_to_make_ready() -> None:
    assert order() == []


def test_records_of_models_that_are_not_there_are_passed_over() -> None:
    assert warm_up_order([record({A: served(1)})], {"opt": LADDERS}, limit=5) == []


def test_a_signature_that_was_never_compiled_is_taken_for_one_of_its_kind() -> None:
    never = SignatureTraffic(device_seconds=10.0)
    traffic = record({B: never, C: served(5, compile_seconds=4.0), A: served(5)})
    # Worth 10 / 4, 5 / 4 and 5 / 1.
    assert order(traffic) == [A, B, C]


def test_what_other_ladders_had_counts_for_what_stands_in_its_place() -> None:
    fitted = Ladders.default(max_length=1024, slots=8, decode_lengths=(96, 384))
    traffic = record({decode(4, 256): served(3), decode(4, 128): served(3), B: served(5)})
    assert order(traffic, ladders=fitted) == [decode(4, 384), decode(1, 96)]


def test_what_ladders_do_not_reach_any_more_is_passed_over() -> None:
    fewer_slots = Ladders.default(max_length=1024, slots=2)
    assert order(record({C: served(5), A: served(1)}), ladders=fewer_slots) == [A]
