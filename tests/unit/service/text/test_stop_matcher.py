"""Stop strings in growing texts."""

import itertools
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shaperouter_service.text import StopMatcher

# Few letters, so that strings begin, repeat and overlap often.
TEXTS = st.text("ab\n", max_size=40)
STOPS = st.lists(st.text("ab\n", min_size=1, max_size=5), max_size=4)
CUTS = st.lists(st.integers(0, 40), max_size=8)


def cut(text: str, cuts: Iterable[int]) -> list[str]:
    places = [0, *sorted({min(cut, len(text)) for cut in cuts}), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(places)]


def read(stop: Sequence[str], pieces: Iterable[str]) -> tuple[str, bool]:
    """The text before the match, and whether there was one."""
    matcher = StopMatcher(stop)
    text = "".join([*map(matcher.push, pieces), matcher.finish()])
    return text, matcher.matched


def before_first(stop: Sequence[str], text: str) -> tuple[str, bool]:
    """The same by searching the whole text."""
    found = [(text.find(s) + len(s), text.find(s)) for s in stop if s in text]
    return (text[: min(found)[1]], True) if found else (text, False)


@given(text=TEXTS, stop=STOPS, cuts=CUTS)
def test_any_pieces_give_the_text_before_the_first_match(
    text: str, stop: list[str], cuts: list[int]
) -> None:
    assert read(stop, cut(text, cuts)) == before_first(stop, text)


@given(text=TEXTS, stop=STOPS)
def test_single_characters_give_the_text_before_the_first_match(text: str, stop: list[str]) -> None:
    assert read(stop, text) == before_first(stop, text)


@given(text=TEXTS, stop=STOPS)
def test_a_match_is_found_with_its_last_character(text: str, stop: list[str]) -> None:
    matcher = StopMatcher(stop)
    for end in range(1, len(text) + 1):
        matcher.push(text[end - 1])
        assert matcher.matched == any(string in text[:end] for string in stop)


@given(text=TEXTS, stop=STOPS)
def test_only_a_possible_beginning_of_a_match_is_held_back(text: str, stop: list[str]) -> None:
    matcher = StopMatcher(stop)
    shown = matcher.push(text)
    held = text[len(shown) :]
    assert matcher.matched or not held or any(string.startswith(held) for string in stop)


def test_the_earliest_of_matches_that_end_together_counts() -> None:
    assert read(["b", "ab"], ["xab"]) == ("x", True)


def test_the_match_that_ends_first_counts() -> None:
    assert read(["abcd", "c"], ["xabcd"]) == ("xab", True)


def test_held_back_text_is_returned_once_it_cannot_match() -> None:
    matcher = StopMatcher(["\n\n"])
    assert [matcher.push("a\n"), matcher.push("b\n"), matcher.finish()] == ["a", "\nb", "\n"]


def test_without_stop_strings_nothing_is_held_back() -> None:
    matcher = StopMatcher([])
    assert [matcher.push("a"), matcher.push(""), matcher.finish()] == ["a", "", ""]


@pytest.mark.parametrize("after", ["", "b", "stop"])
def test_nothing_comes_after_a_match(after: str) -> None:
    matcher = StopMatcher(["stop"])
    assert [matcher.push("a stop b"), matcher.push(after), matcher.finish()] == ["a ", "", ""]
