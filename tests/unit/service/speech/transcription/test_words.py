"""Words are made of tokens, timed by attention, and brought into agreement with segments."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.transcripts import decode
from shaperouter_service.speech.transcription.segments import Word
from shaperouter_service.speech.transcription.words import (
    Pace,
    TimedWord,
    fit_to_segment,
    measure_pace,
    merge_punctuation,
    shorten_at_sentence_ends,
    split_words,
    time_words,
    words_of_segments,
)


def timed(text: str, start: float, end: float) -> TimedWord:
    return TimedWord(
        text=text, token_ids=list(text.encode()), start=start, end=end, probability=0.5
    )


def word(start: float, end: float) -> Word:
    return Word(text=" word", start=start, end=end, probability=0.5)


def texts(words: Sequence[tuple[str, Sequence[int]]]) -> list[str]:
    return [text for text, _ in words]


# --- Which tokens ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "language", "expected"),
    [
        (" Hello, world", "en", [" Hello", ",", " world"]),
        ("Hello world", None, ["Hello", " world"]),
        # A byte is a token here, the first space too.
        (' "Yes," she said', "en", [" ", '"Yes', ",", '"', " she", " said"]),
        # A letter of several tokens is one.
        (" Grüße", "de", [" Grüße"]),
        ("東京", "ja", ["東", "京"]),
        ("", "en", []),
    ],
)
def test_text_is_split_at_spaces_or_characters(
    text: str, language: str | None, expected: list[str]
) -> None:
    assert texts(split_words(list(text.encode()), decode, language)) == expected


def test_a_character_that_was_cut_off_is_a_word_of_its_own_tokens() -> None:
    cut = list("é".encode())[:1]
    words = split_words([*b"a b", *cut], decode, "en")
    assert [token for _, tokens in words for token in tokens] == [*b"a b", *cut]


@given(st.text(max_size=20), st.sampled_from(["en", "zh"]))
def test_no_token_is_lost(text: str, language: str) -> None:
    token_ids = list(text.encode(errors="ignore"))
    words = split_words(token_ids, decode, language)
    assert [token for _, tokens in words for token in tokens] == token_ids


# --- When -----------------------------------------------------------------------------------------


def test_a_word_lasts_until_the_next_begins() -> None:
    # Positions of the tokens and of the end; 25 positions are 0.5 s.
    places, logprobs = [0, 25, 50, 75], np.log([0.2, 0.4, 0.9])
    words = time_words([(" ab", [1, 2]), (" c", [3])], positions=places, logprobs=logprobs)
    assert [one.text for one in words] == [" ab", " c"]
    assert [(one.start, one.end) for one in words] == [
        pytest.approx((0.0, 1.0)),
        pytest.approx((1.0, 1.5)),
    ]
    assert [one.probability for one in words] == pytest.approx([0.3, 0.9])


# --- Punctuation ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("split", "merged"),
    [
        ([" Hello", ",", " world", "."], [" Hello,", " world."]),
        ([' "', "Yes", ",", '"'], [' "Yes,"']),
        ([" (", "a", ")"], [" (a)"]),
        ([" 「", "a"], [" 「", "a"]),
        (["."], ["."]),
        ([' "'], [' "']),
    ],
)
def test_marks_belong_to_their_words(split: list[str], merged: list[str]) -> None:
    words = merge_punctuation([timed(text, index, index + 1) for index, text in enumerate(split)])
    assert [one.text for one in words] == merged
    assert [bytes(one.token_ids).decode() for one in words] == merged


def test_a_word_keeps_its_time_without_its_marks() -> None:
    words = merge_punctuation([timed(" (", 0, 1), timed("a", 1, 2), timed(")", 2, 3)])
    assert [(one.start, one.end) for one in words] == [(1, 2)]


# --- Pauses ---------------------------------------------------------------------------------------


def test_the_pace_is_the_median_of_what_takes_time() -> None:
    words = [timed("a", 0, 0), timed("b", 0, 0.2), timed("c", 0.2, 0.6)]
    assert measure_pace(words).median == pytest.approx(0.3)
    assert measure_pace([timed("slow", 0, 5)]).median == 0.7
    assert measure_pace([]).median == 0


def test_pauses_between_sentences_are_no_part_of_words() -> None:
    words = [timed(" a", 0, 0.3), timed(".", 0.3, 3), timed(" b", 3, 6)]
    shortened = shorten_at_sentence_ends(words, Pace(median=0.3))
    assert [(one.start, one.end) for one in shortened] == [
        (0, 0.3),
        pytest.approx((0.3, 0.9)),
        pytest.approx((5.4, 6)),
    ]


def test_long_words_in_mid_sentence_stay() -> None:
    words = [timed(" a", 0, 0.3), timed(" b", 0.3, 3)]
    assert shorten_at_sentence_ends(words, Pace(median=0.3)) == words


# --- Segments -------------------------------------------------------------------------------------


def test_words_are_dealt_out_by_their_tokens() -> None:
    words = [timed(" ab", 0, 1), timed(" c", 1, 2), timed(" d", 2, 3)]
    first, second, third = words_of_segments(words, [5, 0, 2], 10.0)
    assert [(one.text, one.start, one.end) for one in first] == [(" ab", 10, 11), (" c", 11, 12)]
    assert second == []
    assert [one.text for one in third] == [" d"]


CALM = Pace(median=0.3)


@pytest.mark.parametrize(
    ("words", "segment", "last_end", "fitted", "new_segment"),
    [
        pytest.param(
            [(1.0, 1.3), (1.3, 1.6)],
            (0.9, 1.7),
            0.9,
            [(1.0, 1.3), (1.3, 1.6)],
            (1.0, 1.6),
            id="a segment is as long as its words",
        ),
        pytest.param(
            [(1.0, 4.0), (4.0, 4.3)],
            (3.9, 4.3),
            0.5,
            [(3.4, 4.0), (4.0, 4.3)],
            (3.4, 4.3),
            id="a long word after a pause begins later",
        ),
        pytest.param(
            [(1.0, 2.0), (2.0, 4.0)],
            (1.0, 4.0),
            0.5,
            [(2.8, 3.4), (3.4, 4.0)],
            (2.8, 4.0),
            id="two long words after a pause share what is left",
        ),
        pytest.param(
            [(1.0, 2.0), (2.0, 2.3)],
            (1.9, 2.3),
            0.9,
            [(1.7, 2.0), (2.0, 2.3)],
            (1.9, 2.3),
            id="a first word that begins long before its segment is shortened",
        ),
        pytest.param(
            [(1.0, 1.3), (1.3, 3.0)],
            (1.0, 2.0),
            0.9,
            [(1.0, 1.3), (1.3, 2.0)],
            (1.0, 2.0),
            id="a last word that ends long after its segment is shortened",
        ),
    ],
)
def test_words_and_segment_agree(
    words: list[tuple[float, float]],
    segment: tuple[float, float],
    last_end: float,
    fitted: list[tuple[float, float]],
    new_segment: tuple[float, float],
) -> None:
    found, start, end = fit_to_segment(
        [word(*one) for one in words],
        start=segment[0],
        end=segment[1],
        last_end=last_end,
        pace=CALM,
    )
    assert [(one.start, one.end) for one in found] == [pytest.approx(one) for one in fitted]
    assert (start, end) == pytest.approx(new_segment)
