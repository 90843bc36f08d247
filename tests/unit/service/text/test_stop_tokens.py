"""A token completes a stop string if the text then contains it."""

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from tokenizers import decoders, models, normalizers
from transformers import PreTrainedTokenizerFast

from shaperouter_service.checkpoints.model_locations import parse_models
from shaperouter_service.text import StopTokens, Tokenizer, load_tokenizer

CASES = 12
WORDS = ["▁", "▁the", "the", "▁cat", "s", "at", "▁a", "é", "。", "\n", "a", "▁▁", "▁s", "t", "h"]


def _saved(directory: Path, tokenizer: tokenizers.Tokenizer) -> Tokenizer:
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="</s>", pad_token="<pad>"
    ).save_pretrained(directory)
    loaded = load_tokenizer(directory)
    assert loaded is not None
    return loaded


def _words(decoder: decoders.Decoder | None) -> tokenizers.Tokenizer:
    entries = ["<pad>", "</s>", "<unk>", *WORDS]
    made = tokenizers.Tokenizer(
        models.WordLevel({word: token for token, word in enumerate(entries)}, "<unk>")
    )
    made.normalizer = normalizers.Replace(" ", "▁")
    made.add_special_tokens(["<pad>", "</s>"])
    if decoder is not None:
        made.decoder = decoder
    return made


@pytest.fixture(scope="session", params=["ByteLevel", "Metaspace", "spaces", "g2p"])
def kind(
    request: pytest.FixtureRequest,
    tokenizer: Tokenizer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Tokenizer:
    """A tokenizer with each supported decoder."""
    directory = tmp_path_factory.mktemp("tokenizer")
    if request.param == "ByteLevel":
        return tokenizer
    if request.param == "Metaspace":
        return _saved(directory, _words(decoders.Metaspace()))
    if request.param == "spaces":
        return _saved(directory, _words(None))
    (source,) = parse_models(["g2p"])
    loaded = load_tokenizer(source.directory)
    assert loaded is not None
    return loaded


def _size(tokenizer: Tokenizer) -> int:
    return int(tokenizer._tokenizer.backend_tokenizer.get_vocab_size())


def _in_text(tokenizer: Tokenizer, stop: Sequence[str], token_ids: Sequence[int]) -> bool:
    return any(string in tokenizer.decode(token_ids) for string in stop)


def test_tokens_complete_a_stop_string_if_the_text_then_contains_it(kind: Tokenizer) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    size = _size(kind)
    vocabulary = kind.vocabulary(size)
    some_stopped = 0
    for _ in range(CASES):
        token_ids = [rng.randrange(size) for _ in range(rng.randint(1, 12))]
        text = kind.decode(token_ids).replace("\N{REPLACEMENT CHARACTER}", "")
        begin = rng.randint(0, max(0, len(text) - 1))
        stop = [
            text[begin : begin + rng.randint(1, 6)] or "a",
            rng.choice(["the c", "é", " ", "x"]),
        ]
        tokens = StopTokens(vocabulary, stop, continues_text=False)
        before: list[int] = []
        while before != token_ids and not _in_text(kind, stop, before):
            completing = np.unpackbits(tokens.after(before), bitorder="little")[:size]
            expected = [_in_text(kind, stop, [*before, token]) for token in range(size)]
            assert completing.astype(bool).tolist() == expected, (stop, before)
            before.append(token_ids[len(before)])
        if before and _in_text(kind, stop, before):
            some_stopped += 1
            assert tokens.completed_by(before)
            assert not any(tokens.completed_by(before[:end]) for end in range(1, len(before)))
    assert some_stopped


def test_tokens_beyond_the_vocabulary_of_the_model_are_left_out(tokenizer: Tokenizer) -> None:
    for size in (40, _size(tokenizer) + 33):
        completing = StopTokens(tokenizer.vocabulary(size), ["!"], continues_text=False).after([])
        assert len(completing) == -(-size // 8)
        (token,) = tokenizer.encode("!")
        assert completing[token // 8] == 1 << token % 8


def test_the_longest_stop_strings_are_found(tokenizer: Tokenizer) -> None:
    stop = "a" * 255 + "b"
    ids = tokenizer.encode("a" * 300 + "b")
    vocabulary = tokenizer.vocabulary(_size(tokenizer))
    tokens = StopTokens(vocabulary, [stop, "b" * 256], continues_text=False)
    assert tokens.completed_by(ids)
    assert not tokens.completed_by(ids[:-1])


def test_a_decoder_that_changes_earlier_text_is_refused(tmp_path: Path) -> None:
    tokenizer = _saved(tmp_path, _words(decoders.WordPiece()))
    assert not tokenizer.is_concatenative
    with pytest.raises(ValueError, match="decoder WordPiece"):
        tokenizer.vocabulary(10)


@pytest.mark.parametrize(("continues_text", "stops"), [(True, True), (False, False)])
def test_only_a_text_that_continues_the_prompt_begins_with_a_space(
    tmp_path: Path, continues_text: bool, stops: bool
) -> None:
    tokenizer = _saved(tmp_path, _words(decoders.Metaspace()))
    vocabulary = tokenizer.vocabulary(_size(tokenizer))
    tokens = StopTokens(vocabulary, [" cat"], continues_text=continues_text)
    assert tokens.completed_by([tokenizer.token_ids["▁cat"]]) == stops
