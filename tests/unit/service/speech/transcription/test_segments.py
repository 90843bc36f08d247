"""The tokens of a window are taken apart at their timestamps."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from harness.transcripts import END, TOKENS, transcript
from shaperouter_service.speech.transcription.segments import Span, SplitWindow, split_at_timestamps

# A window from second 10 on, of which 20 s are the recording's.
FIRST, FRAMES = 1000, 2000
WINDOW_END = FIRST + FRAMES


def spans(division: SplitWindow) -> list[tuple[float, float, list[int]]]:
    return [(span.start / 100, span.end / 100, list(span.token_ids)) for span in division.spans]


@pytest.mark.parametrize(
    ("token_ids", "expected", "next_second"),
    [
        pytest.param(
            transcript(0.0, "ab", 2.0, 2.5, "c", 6.0, 6.0, "d"),
            [
                (10.0, 12.0, transcript(0.0, "ab", 2.0)),
                (12.5, 16.0, transcript(2.5, "c", 6.0)),
            ],
            16.0,
            id="what is behind the last pair is cut off",
        ),
        pytest.param(
            transcript(0.0, "ab", 2.0, 2.5, "c", 6.0),
            [
                (10.0, 12.0, transcript(0.0, "ab", 2.0)),
                (12.5, 16.0, transcript(2.5, "c", 6.0)),
            ],
            30.0,
            id="nothing is said behind a timestamp that ends the window",
        ),
        pytest.param(
            transcript(0.0, "ab", 2.0, 2.0),
            [(10.0, 12.0, transcript(0.0, "ab", 2.0))],
            12.0,
            id="a segment has only begun",
        ),
        pytest.param(
            transcript(1.0, "ab", 4.0),
            [(11.0, 14.0, transcript(1.0, "ab", 4.0))],
            30.0,
            id="one segment",
        ),
        pytest.param(
            transcript(1.0, "ab"),
            [(11.0, 30.0, transcript(1.0, "ab"))],
            30.0,
            id="a segment without an end lasts to the window's",
        ),
        pytest.param(
            transcript(20.0, "ab"),
            [(10.0, 30.0, transcript(20.0, "ab"))],
            30.0,
            id="a segment does not begin at its end",
        ),
        pytest.param(transcript("ab"), [(10.0, 30.0, transcript("ab"))], 30.0, id="no timestamps"),
        pytest.param([], [(10.0, 30.0, [])], 30.0, id="nothing"),
        pytest.param(
            transcript("a", 2.0, 2.0, "b"),
            [(10.0, 12.0, transcript("a", 2.0))],
            12.0,
            id="a beginning that was not held to the rules",
        ),
        pytest.param(
            transcript(0.0, 0.0, "b"),
            [(10.0, 10.0, transcript(0.0))],
            30.0,
            id="an end that does not get on",
        ),
    ],
)
def test_spans_and_where_to_go_on(
    token_ids: list[int], expected: list[tuple[float, float, list[int]]], next_second: float
) -> None:
    division = split_at_timestamps(token_ids, TOKENS, first_frame=FIRST, frames=FRAMES)
    assert spans(division) == expected
    assert division.next_frame == next_second * 100


@given(st.lists(st.integers(0, END + 30), max_size=12), st.integers(1, FRAMES))
def test_any_tokens_get_on(token_ids: list[int], frames: int) -> None:
    division = split_at_timestamps(token_ids, TOKENS, first_frame=FIRST, frames=frames)
    assert division.next_frame > FIRST


@given(st.lists(st.integers(0, END + 30), max_size=12))
def test_spans_are_tokens_in_order(token_ids: list[int]) -> None:
    division = split_at_timestamps(token_ids, TOKENS, first_frame=FIRST, frames=FRAMES)
    joined = [token for span in division.spans for token in span.token_ids]
    assert joined == token_ids[: len(joined)]
    assert all(isinstance(span, Span) for span in division.spans)
