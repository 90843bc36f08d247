"""Tokenizers that are made for translation tokenize as Transformers does, for each language."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from transformers import MBart50Tokenizer, MBartTokenizer, NllbTokenizer

from shaperouter_service.text.tokenizer import Tokenizer

TEXTS = ["the graph is compiled once", "hello world", "le graphe est compilé", "bonjour"] * 10
LETTERS = ["<s>", "<pad>", "</s>", "<unk>", "▁", *"abcdefghijklmnopqrstuvwxyz"]


def pieces(directory: Path, name: str) -> list[str]:
    """Trains a vocabulary into a file, and returns its tokens without the special ones."""
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS),
        model_prefix=str(directory / "trained"),
        vocab_size=60,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    (directory / "trained.model").rename(directory / name)
    (directory / "trained.vocab").unlink()
    trained = sentencepiece.SentencePieceProcessor(model_file=str(directory / name))
    return [trained.id_to_piece(each) for each in range(3, trained.get_piece_size())]


def write(directory: Path, model_type: str, tokenizer: str, vocabulary: list[str]) -> None:
    numbered = {token: index for index, token in enumerate(vocabulary)}
    config: dict[str, Any] = {"tokenizer_class": tokenizer}
    for name, content in (
        ("vocab.json", numbered),
        ("config.json", {"model_type": model_type}),
        ("tokenizer_config.json", config),
    ):
        (directory / name).write_text(json.dumps(content))


def marian(directory: Path) -> None:
    own = pieces(directory, "source.spm")
    (directory / "target.spm").write_bytes((directory / "source.spm").read_bytes())
    vocabulary = ["</s>", "<unk>", ">>fra<<", ">>deu<<", *own, "<pad>"]
    write(directory, "marian", "MarianTokenizer", vocabulary)


def m2m100(directory: Path) -> None:
    own = pieces(directory, "sentencepiece.bpe.model")
    write(directory, "m2m_100", "M2M100Tokenizer", ["<s>", "<pad>", "</s>", "<unk>", *own])


def nllb(directory: Path) -> None:
    vocabulary = {token: index for index, token in enumerate(LETTERS)}
    NllbTokenizer(vocab=vocabulary, merges=[]).save_pretrained(directory)


def mbart(directory: Path) -> None:
    MBartTokenizer(vocab=[(token, 0.0) for token in LETTERS]).save_pretrained(directory)


def mbart50(directory: Path) -> None:
    MBart50Tokenizer(vocab=[(token, 0.0) for token in LETTERS]).save_pretrained(directory)


@pytest.fixture
def load(tmp_path: Path) -> Callable[[Callable[[Path], None]], tuple[Tokenizer, Any]]:
    def loaded(make: Callable[[Path], None]) -> tuple[Tokenizer, Any]:
        """Our tokenizer and Transformers'."""
        from transformers import AutoTokenizer

        make(tmp_path)
        return Tokenizer(tmp_path), AutoTokenizer.from_pretrained(tmp_path)

    return loaded


@pytest.mark.parametrize(
    ("make", "languages"),
    [
        (m2m100, ["de", "en", "fr"]),
        (nllb, ["eng_Latn", "fra_Latn", "zho_Hans"]),
        (mbart, ["en_XX", "ro_RO"]),
        (mbart50, ["en_XX", "gl_ES"]),
    ],
)
def test_a_source_has_the_special_tokens_of_its_language(
    load: Any, make: Callable[[Path], None], languages: list[str]
) -> None:
    tokenizer, reference = load(make)
    default = reference("hello")["input_ids"]
    for language in languages:
        reference.src_lang = language
        expected = reference("hello")["input_ids"]
        assert tokenizer.encode_source("hello", language, "") == expected
    # The languages of one request do not change those of the next.
    assert tokenizer.encode_source("hello", "", "") == default == tokenizer.encode("hello")


@pytest.mark.parametrize(
    ("make", "code", "token"),
    [(m2m100, "fr", "__fr__"), (nllb, "fra_Latn", "fra_Latn"), (mbart50, "fr_XX", "fr_XX")],
)
def test_a_target_language_is_a_token(
    load: Any, make: Callable[[Path], None], code: str, token: str
) -> None:
    tokenizer, reference = load(make)
    assert tokenizer.languages.targets[code] == reference.convert_tokens_to_ids(token)


def test_marians_target_language_begins_the_source(load: Any) -> None:
    tokenizer, reference = load(marian)
    assert tokenizer.languages.target_codes == ["fra", "deu"]
    expected = reference(">>fra<< hello")["input_ids"]
    assert tokenizer.encode_source("hello", "", "fra") == expected
    assert tokenizer.encode("hello") == expected[1:]


def test_mbarts_checkpoint_chooses_the_target_language(load: Any) -> None:
    tokenizer, _ = load(mbart)
    assert tokenizer.languages.sources.keys() >= {"en_XX", "ro_RO"}
    assert not tokenizer.languages.target_codes


def test_most_tokenizers_have_no_languages(checkpoint: Path) -> None:
    languages = Tokenizer(checkpoint).languages
    assert not languages.sources
    assert not languages.target_codes
