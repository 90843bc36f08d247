"""Ladders of models that are called once."""

import pytest

from shaperouter_service.routing.call_ladders import AxisLadder, CallLadders
from shaperouter_service.routing.ladder import Ladder
from shaperouter_service.routing.signatures import Signature

PADDED = CallLadders(
    rows=Ladder((1, 4)),
    axes=(
        AxisLadder(name="length", ladder=Ladder((16, 32))),
        AxisLadder(name="width", ladder=Ladder((8,))),
    ),
)
EXACT_WIDTH = CallLadders(
    rows=Ladder((1, 4)),
    axes=(
        AxisLadder(name="length", ladder=Ladder((16, 32))),
        AxisLadder(name="width", ladder=None),
    ),
)
EXACT_BATCH = CallLadders(rows=None, axes=(AxisLadder(name="length", ladder=Ladder((16,))),))


def test_sizes_are_padded_to_the_next_rungs() -> None:
    assert str(PADDED.tight("f", rows=3, sizes=(17, 5))) == "f call 4x32x8"


def test_axes_without_a_ladder_keep_their_size() -> None:
    assert str(EXACT_WIDTH.tight("f", rows=3, sizes=(17, 5))) == "f call 4x32 exact 5"


def test_a_batch_that_cannot_be_padded_is_an_exact_size() -> None:
    assert str(EXACT_BATCH.tight("f", rows=3, sizes=(5,))) == "f call 1x16 exact 3"


def test_a_model_without_axes_has_one_signature() -> None:
    ladders = CallLadders(rows=Ladder((2,)))
    assert [*map(str, ladders.signatures("f"))] == ["f call 2x1"]


def test_a_larger_signature_covers_a_smaller_one_only_with_equal_exact_sizes() -> None:
    small, large = (EXACT_WIDTH.tight("f", rows=1, sizes=(n, 5)) for n in (16, 32))
    other = EXACT_WIDTH.tight("f", rows=1, sizes=(32, 6))
    assert large.covers(small)
    assert not small.covers(large)
    assert not other.covers(small)


@pytest.mark.parametrize("text", ["f call 4x32x8", "f call 4x32 exact 5x6", "f call 1x1 exact 3"])
def test_the_short_form_of_a_call_can_be_parsed(text: str) -> None:
    assert str(Signature.parse(text)) == text


def test_all_signatures_are_the_product_of_the_ladders() -> None:
    assert {*map(str, PADDED.signatures("f"))} == {
        "f call 1x16x8",
        "f call 1x32x8",
        "f call 4x16x8",
        "f call 4x32x8",
    }
    assert not [*EXACT_WIDTH.signatures("f")]
