"""Detokenization of growing sequences."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.sentencepiece import with_byte_fallback
from shaperouter_service.text import Detokenizer, Tokenizer, context_of
from shaperouter_service.text.detokenizer import MAX_HELD

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

Encode = Callable[[str], Sequence[int]]

# Mostly characters of several bytes, which is where streams break.
CHARACTERS = st.sampled_from("a b\n.éß東京は😀👩\u200d🎉\u0301") | st.characters(codec="utf-8")
TEXTS = st.text(CHARACTERS, max_size=30)


def chunked(ids: Sequence[int], cuts: Iterable[int]) -> list[Sequence[int]]:
    places = [0, *sorted({min(cut, len(ids)) for cut in cuts}), len(ids)]
    return [ids[start:end] for start, end in itertools.pairwise(places)]


def pieces_of(detokenizer: Detokenizer, chunks: Iterable[Sequence[int]]) -> list[str]:
    return [*(detokenizer.push(chunk) for chunk in chunks), detokenizer.finish()]


@given(text=TEXTS, cuts=st.lists(st.integers(0, 60), max_size=8))
def test_the_pieces_of_any_chunking_make_up_the_text(
    tokenizer: Tokenizer, encode: Encode, text: str, cuts: list[int]
) -> None:
    chunks = chunked(encode(text), cuts)
    assert "".join(pieces_of(tokenizer.detokenizer(), chunks)) == text


@given(text=TEXTS)
def test_pieces_of_single_tokens_make_up_the_text(
    tokenizer: Tokenizer, encode: Encode, text: str
) -> None:
    chunks = [[token] for token in encode(text)]
    assert "".join(pieces_of(tokenizer.detokenizer(), chunks)) == text


@given(text=TEXTS.filter(lambda text: REPLACEMENT not in text))
def test_no_piece_shows_a_broken_character(tokenizer: Tokenizer, encode: Encode, text: str) -> None:
    pieces = pieces_of(tokenizer.detokenizer(), [[token] for token in encode(text)])
    assert not any(REPLACEMENT in piece for piece in pieces)


@given(data=st.data(), cuts=st.lists(st.integers(0, 60), max_size=8))
def test_the_pieces_of_random_tokens_make_up_their_text(
    tokenizer: Tokenizer, data: st.DataObject, cuts: list[int]
) -> None:
    ids = data.draw(st.lists(st.integers(0, 319), max_size=40))
    pieces = pieces_of(tokenizer.detokenizer(), chunked(ids, cuts))
    assert "".join(pieces) == tokenizer.decode(ids)


def test_a_character_comes_with_its_last_token(tokenizer: Tokenizer, encode: Encode) -> None:
    ids = encode("𝄞")
    assert len(ids) == 4
    detokenizer = tokenizer.detokenizer()
    assert [detokenizer.push([token]) for token in ids] == ["", "", "", "𝄞"]


def test_text_before_a_broken_end_comes_with_the_rest(tokenizer: Tokenizer, encode: Encode) -> None:
    ids = [*encode("a"), *encode("𝄞")]
    detokenizer = tokenizer.detokenizer()
    assert [detokenizer.push(ids[:3]), detokenizer.push(ids[3:])] == ["", "a𝄞"]


def test_broken_bytes_at_the_end_come_out_on_finish(tokenizer: Tokenizer, encode: Encode) -> None:
    ids = [*encode("ok"), *encode("𝄞")[:2]]
    *pieces, rest = pieces_of(tokenizer.detokenizer(), [[token] for token in ids])
    assert "".join(pieces) == "ok"
    assert rest == REPLACEMENT


def test_a_replacement_character_of_the_text_itself_is_kept(
    tokenizer: Tokenizer, encode: Encode
) -> None:
    text = f"lost {REPLACEMENT} found {REPLACEMENT}"
    pieces = pieces_of(tokenizer.detokenizer(), [[token] for token in encode(text)])
    assert "".join(pieces) == text


def test_no_tokens_are_no_text(tokenizer: Tokenizer) -> None:
    assert pieces_of(tokenizer.detokenizer(), [[], []]) == ["", "", ""]


def test_finish_gives_the_rest_once(tokenizer: Tokenizer, encode: Encode) -> None:
    detokenizer = tokenizer.detokenizer()
    detokenizer.push(encode("𝄞")[:1])
    assert [detokenizer.finish(), detokenizer.finish()] == [REPLACEMENT, ""]


# What a SentencePiece vocabulary looks like: a space is part of the word after it, and decoders
# drop the first one of a sequence.
WORDS = ["▁Hello", "▁world", "s", "▁", ".", "▁é"]
SPECIAL = len(WORDS)  # decodes to nothing


def decode_like_sentencepiece(ids: Sequence[int]) -> str:
    text = "".join(WORDS[token] for token in ids if token != SPECIAL).replace("▁", " ")
    return text.removeprefix(" ")


@given(ids=st.lists(st.integers(0, SPECIAL - 1)), cuts=st.lists(st.integers(0, 20)))
def test_a_decoder_that_drops_the_first_space_loses_no_other(
    ids: list[int], cuts: list[int]
) -> None:
    pieces = pieces_of(Detokenizer(decode_like_sentencepiece), chunked(ids, cuts))
    assert "".join(pieces) == decode_like_sentencepiece(ids)


@pytest.mark.parametrize(
    "chunks", [[[0], [SPECIAL], [1]], [[0, SPECIAL], [1]], [[0], [SPECIAL, 1]]], ids=str
)
def test_a_space_after_a_token_without_text_is_kept(chunks: list[list[int]]) -> None:
    pieces = pieces_of(Detokenizer(decode_like_sentencepiece), chunks)
    assert "".join(pieces) == "Hello world"


@given(
    prompt=st.lists(st.integers(0, SPECIAL)).filter(decode_like_sentencepiece),
    ids=st.lists(st.integers(0, SPECIAL)),
    cuts=st.lists(st.integers(0, 20)),
)
def test_a_text_and_that_of_its_prompt_make_up_the_text_of_both(
    prompt: list[int], ids: list[int], cuts: list[int]
) -> None:
    context = context_of(decode_like_sentencepiece, prompt)
    detokenizer = Detokenizer(decode_like_sentencepiece, context)
    pieces = pieces_of(detokenizer, chunked(ids, cuts))
    both = decode_like_sentencepiece(prompt) + "".join(pieces)
    assert both == decode_like_sentencepiece([*prompt, *ids])


@pytest.mark.parametrize(
    ("prompt", "context"),
    [([], []), ([0, 1], [1]), ([0, SPECIAL], [0, SPECIAL]), ([SPECIAL] * 200, [])],
    ids=["none", "a word", "a word and a special token", "special tokens"],
)
def test_the_context_is_the_end_of_the_prompt_that_has_text(
    prompt: list[int], context: list[int]
) -> None:
    assert list(context_of(decode_like_sentencepiece, prompt)) == context


def test_the_last_character_of_the_context_is_whole(tokenizer: Tokenizer, encode: Encode) -> None:
    prompt = encode("a𝄞")
    assert list(context_of(tokenizer.decode, prompt)) == list(prompt[-4:])
    assert not context_of(tokenizer.decode, prompt[1:3])


def test_the_context_is_found_after_characters_of_bytes(tmp_path: Path) -> None:
    llama = with_byte_fallback(tmp_path)
    # Such decoders show all bytes in a row as broken if the first one is within a character.
    for count in range(1, 10):
        prompt = llama.encode("ab" + "ក" * count)
        context = context_of(llama.decode, prompt)
        assert llama.detokenizer(context).push([llama.token_ids["▁a"]]) == " a"


@pytest.mark.parametrize("text", [REPLACEMENT, "\N{MUSICAL SYMBOL G CLEF}"])
def test_broken_bytes_come_out_while_more_follow(
    tokenizer: Tokenizer, encode: Encode, text: str
) -> None:
    byte = encode(text)[0]
    decoded: list[int] = []

    def decode(ids: Sequence[int]) -> str:
        decoded.append(len(ids))
        return tokenizer.decode(ids)

    pieces = pieces_of(Detokenizer(decode), [[byte]] * 10 * MAX_HELD)
    assert "".join(pieces) == REPLACEMENT * 10 * MAX_HELD
    assert max(decoded) <= 2 * (MAX_HELD + 1)


def test_a_character_after_many_broken_bytes_is_whole(tokenizer: Tokenizer, encode: Encode) -> None:
    broken, text = list(encode("𝄞")[:1]) * MAX_HELD, REPLACEMENT * MAX_HELD
    for between in ("", "a"):
        tokens = [*broken, *encode(between), *encode("𝄞")]
        expected = text + between + "𝄞"
        for chunks in ([[token] for token in tokens], [tokens[:-2], tokens[-2:]]):
            assert "".join(pieces_of(tokenizer.detokenizer(), chunks)) == expected


def test_tokens_without_text_are_not_decoded_for_ever() -> None:
    decoded: list[int] = []

    def decode(ids: Sequence[int]) -> str:
        decoded.append(len(ids))
        return decode_like_sentencepiece(ids)

    pieces = pieces_of(Detokenizer(decode), [[0], *[[SPECIAL]] * 10 * MAX_HELD, [1]])
    assert "".join(pieces) == "Hello world"
    assert max(decoded) <= MAX_HELD + 2
