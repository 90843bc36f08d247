"""The tokenizer of the built-in grapheme-to-phoneme model."""

import pytest

from shaperouter_service.checkpoints.model_locations import parse_models
from shaperouter_service.text import Tokenizer, load_tokenizer

END = 1
UNKNOWN = 2


@pytest.fixture(scope="module")
def g2p() -> Tokenizer:
    (source,) = parse_models(["g2p"])
    loaded = load_tokenizer(source.directory)
    assert loaded is not None
    return loaded


def encode(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text)


def test_each_character_is_a_token_and_the_end_is_marked(g2p: Tokenizer) -> None:
    ids = encode(g2p, "noon")
    assert len(set(ids[:4])) == 2
    assert ids[:4] == ids[3::-1]
    assert ids[4:] == [END]


@pytest.mark.parametrize(
    ("text", "plain"),
    [("CaFe", "cafe"), ("café", "cafe"), ("don\N{RIGHT SINGLE QUOTATION MARK}t", "don't")],
)
def test_capitals_accents_and_curly_apostrophes_do_not_matter(
    g2p: Tokenizer, text: str, plain: str
) -> None:
    assert encode(g2p, text) == encode(g2p, plain)


@pytest.mark.parametrize("character", ["?", "7", " ", "\n", "東", "😀"])
def test_other_characters_are_unknown(g2p: Tokenizer, character: str) -> None:
    assert encode(g2p, f"a{character}b") == [*encode(g2p, "a")[:1], UNKNOWN, *encode(g2p, "b")]


def test_text_is_never_read_as_phonemes(g2p: Tokenizer) -> None:
    (first, second, end) = encode(g2p, "AA")
    assert first == second
    assert end == END


def phonemes(g2p: Tokenizer) -> list[int]:
    """Ids of the phonemes: all but special tokens and characters, by their capitals."""
    return [number for number in range(71) if g2p.decode([number]).isupper()]


def test_decoding_puts_a_space_between_phonemes_and_leaves_out_the_end(g2p: Tokenizer) -> None:
    first, second = phonemes(g2p)[:2]
    assert g2p.decode([0, first, second, END]) == f"{g2p.decode([first])} {g2p.decode([second])}"


def test_streamed_phonemes_are_the_decoded_text(g2p: Tokenizer) -> None:
    ids = phonemes(g2p)
    assert len(ids) == 39
    detokenizer = g2p.detokenizer()
    pieces = [detokenizer.push([number]) for number in ids]
    assert "".join(pieces) + detokenizer.finish() == g2p.decode(ids)
