"""How long a request is expected to queue behind prompts that are still to be read."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.routing import LADDERS, MODEL, SOURCE_LADDERS, encoding_worker, prefill, shape, worker
from shaperouter_service.routing.choice import Decision
from shaperouter_service.routing.decision import RequestShape, decide
from shaperouter_service.routing.signatures import GraphKind, Signature

FIRST = (LADDERS.first_of(MODEL, GraphKind.PREFILL), LADDERS.first_decode(MODEL, 1))
PIECE_SECONDS = 0.15


def queue_seconds(
    unread: Sequence[int], *, prompt_tokens: int = 10, ready: Sequence[Signature] = ()
) -> float:
    """Behind prompts of these lengths, on a worker all of whose prefill graphs take as long."""
    view = worker("a", ready=[*FIRST, *ready], active=3, unread=unread)
    for signature in (FIRST[0], *ready):
        view.costs.measured(signature, PIECE_SECONDS)
    decision = decide(shape(prompt_tokens=prompt_tokens), [view], now=0.0)
    assert isinstance(decision, Decision)
    # Its lane has a slot free.
    return decision.taken.queue_seconds


@given(st.lists(st.integers(1, 900), max_size=8), st.integers(1, 900), st.integers(1, 900))
def test_prompts_that_wait_take_as_long_whoever_waits_for_them(
    unread: list[int], one: int, other: int
) -> None:
    assert queue_seconds(unread, prompt_tokens=one) == queue_seconds(unread, prompt_tokens=other)


def test_a_long_prompt_takes_a_call_for_each_of_its_pieces() -> None:
    pieces = 4 * 512 / LADDERS.prefill_piece
    assert queue_seconds(4 * [512]) == pytest.approx(pieces * PIECE_SECONDS)


def test_a_short_prompt_takes_a_call_of_its_own_on_a_graph_of_one_row() -> None:
    assert queue_seconds(3 * [10]) == pytest.approx(3 * PIECE_SECONDS)


def test_short_prompts_are_read_together_on_a_graph_of_many_rows() -> None:
    seconds = queue_seconds(3 * [10], ready=[prefill(16, rows=4)])
    assert seconds == pytest.approx(PIECE_SECONDS)


@pytest.mark.parametrize(("rows", "calls"), [(1, 3), (2, 2), (4, 1)])
def test_sources_that_wait_take_the_calls_of_the_graph_that_encodes_them(
    rows: int, calls: int
) -> None:
    first = SOURCE_LADDERS.first(MODEL)
    together = SOURCE_LADDERS.encode(MODEL, rows=rows, source_tokens=16)
    view = encoding_worker([*first, together], active=3, sources=3 * [16])
    for signature in (first[0], together):
        view.costs.measured(signature, PIECE_SECONDS)
    request = RequestShape(
        model=MODEL, prompt_tokens=1, new_tokens=30, num_beams=1, source_tokens=300
    )
    decision = decide(request, [view], now=0.0)
    assert isinstance(decision, Decision)
    assert decision.taken.queue_seconds == pytest.approx(calls * PIECE_SECONDS)
