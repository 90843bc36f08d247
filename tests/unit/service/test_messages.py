"""Messages: what is sent is what arrives."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shaperouter_service.messages import ladders_from_proto, ladders_to_proto
from shaperouter_service.routing.ladders import Ladders


@given(
    max_length=st.integers(1, 8192),
    slots=st.integers(1, 64),
    prefill_piece=st.integers(1, 512),
    max_source_length=st.integers(0, 4096),
    has_whole_source=st.booleans(),
)
def test_ladders_arrive_as_they_were_sent(**settings: Any) -> None:
    ladders = Ladders.default(**settings)
    assert ladders_from_proto(ladders_to_proto(ladders)) == ladders
