"""Offsets of tokens are positions in the text of a completion."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.sentencepiece import with_byte_fallback
from shaperouter_service.edge.http.openai.token_offsets import TokenOffsets
from shaperouter_service.generation.events import TokenizedInput
from shaperouter_service.text import Tokenizer, context_of

Encode = Callable[[str], Sequence[int]]

TEXTS = st.text(st.sampled_from("a b\n.éß東京😀👩\u200d🎉"), min_size=1, max_size=30)


def offsets_in(tokenizer: Tokenizer, *, echo: str = "", prompt: Sequence[int] = ()) -> TokenOffsets:
    return TokenOffsets(
        TokenizedInput(
            tokens=len(prompt),
            is_source=False,
            token_text=tokenizer.token_text,
            token_bytes=tokenizer.token_bytes,
            decode=tokenizer.decode,
            context=context_of(tokenizer.decode, prompt),
            echo=echo,
        )
    )


@pytest.fixture
def spaced(tmp_path: Path) -> Tokenizer:
    """A tokenizer that drops the first space of a text."""
    return with_byte_fallback(tmp_path)


def ids(tokenizer: Tokenizer, *pieces: str) -> list[int]:
    return [tokenizer.token_ids[piece] for piece in pieces]


@given(prompt=TEXTS, text=TEXTS)
def test_each_token_is_where_its_text_is(
    tokenizer: Tokenizer, encode: Encode, prompt: str, text: str
) -> None:
    before, after = encode(prompt), encode(text)
    places = offsets_in(tokenizer, echo=prompt, prompt=before)
    offsets = [*places.of_prompt(before), *places.of_next(after)]
    for offset, token in zip(offsets, [*before, *after], strict=True):
        own = tokenizer.token_text(token).partition("\N{REPLACEMENT CHARACTER}")[0]
        assert (prompt + text)[offset:].startswith(own)
    assert offsets == sorted(offsets)


def test_the_parts_of_a_character_have_its_place(tokenizer: Tokenizer, encode: Encode) -> None:
    assert offsets_in(tokenizer).of_next(encode("a𝄞.")) == [0, 1, 1, 1, 1, 2]


def test_a_dropped_space_has_no_width(spaced: Tokenizer) -> None:
    text = ids(spaced, "▁a", "▁b", "b")
    assert spaced.decode(text) == "a bb"
    assert offsets_in(spaced).of_next(text) == [0, 1, 3]
    assert offsets_in(spaced, echo="a bb").of_prompt(text) == [0, 1, 3]


def test_a_space_after_the_prompt_is_kept(spaced: Tokenizer) -> None:
    prompt = ids(spaced, "▁a")
    places = offsets_in(spaced, echo="a", prompt=prompt)
    assert places.of_next(ids(spaced, "▁b", "b")) == [1, 3]


@pytest.mark.parametrize(("echo", "offsets"), [("ab", [0, 0, 1]), ("</s>ab", [0, 4, 5])])
def test_a_special_token_has_the_width_that_it_has_in_the_prompt(
    spaced: Tokenizer, echo: str, offsets: list[int]
) -> None:
    prompt = ids(spaced, "</s>", "a", "b")
    assert offsets_in(spaced, echo=echo, prompt=prompt).of_prompt(prompt) == offsets


def test_bytes_without_a_token_of_their_character_have_its_place(spaced: Tokenizer) -> None:
    text = ids(spaced, "▁a", "<0xC3>", "<0xA9>", "b")
    assert spaced.decode(text) == "aéb"
    assert offsets_in(spaced).of_next(text) == [0, 1, 1, 2]


def test_pieces_of_a_stream_have_the_offsets_of_the_whole(
    tokenizer: Tokenizer, encode: Encode
) -> None:
    text = encode("x 😀 yes.")
    whole, places = offsets_in(tokenizer).of_next(text), offsets_in(tokenizer)
    assert [offset for token in text for offset in places.of_next([token])] == whole
