"""Options of a message: long lists are refused by their length, without converting them."""

from __future__ import annotations

from typing import Any

import pytest

from shaperouter.v1 import generation_pb2
from shaperouter_service.generation.limits import MAX_BIASES
from shaperouter_service.wire.options import options_from_message


@pytest.mark.parametrize("count", [MAX_BIASES, MAX_BIASES + 1])
@pytest.mark.parametrize(
    ("name", "entry", "value"),
    [
        ("logit_bias", generation_pb2.LogitBias(token_id=3, bias=0.5), (3, 0.5)),
        ("bad_words_token_ids", generation_pb2.TokenIds(ids=[1, 2]), (1, 2)),
    ],
)
def test_a_list_has_its_length_and_its_first_entries(
    name: str, entry: Any, value: tuple[float, ...], count: int
) -> None:
    message = generation_pb2.GenerationOptions(**{name: [entry] * count})
    (found,) = options_from_message(message).values()
    assert len(found) == count
    assert found[:2] == (value, value)
    assert found[0] == value
