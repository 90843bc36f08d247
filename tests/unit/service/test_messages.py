"""Messages: what is sent is what arrives."""

from hypothesis import given
from hypothesis import strategies as st

from shaperouter_service.messages import ladders_from_proto, ladders_to_proto
from shaperouter_service.routing.ladders import Ladders


@given(max_length=st.integers(1, 8192), slots=st.integers(1, 64), prefill_piece=st.integers(1, 512))
def test_ladders_arrive_as_they_were_sent(max_length: int, slots: int, prefill_piece: int) -> None:
    ladders = Ladders.default(max_length=max_length, slots=slots, prefill_piece=prefill_piece)
    assert ladders_from_proto(ladders_to_proto(ladders)) == ladders
