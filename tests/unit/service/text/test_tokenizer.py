"""Tokenizers of checkpoints."""

import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import tokenizers
import transformers

from harness.sentencepiece import with_byte_fallback
from shaperouter_service.errors import StartupError
from shaperouter_service.text import Tokenizer, load_tokenizer

Encode = Callable[[str], Sequence[int]]


@pytest.fixture
def copy(checkpoint: Path, tmp_path: Path) -> Path:
    """A copy of the checkpoint, to modify."""
    return shutil.copytree(checkpoint, tmp_path / "copy")


def test_a_checkpoint_without_tokenizer_files_has_none(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    assert load_tokenizer(tmp_path) is None


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"model": null}', b"\xff\xfe"], ids=repr)
def test_a_damaged_file_is_a_startup_error_that_names_the_directory(
    copy: Path, content: bytes
) -> None:
    (copy / "tokenizer.json").write_bytes(content)
    with pytest.raises(StartupError, match="cannot load the tokenizer") as error:
        load_tokenizer(copy)
    assert str(copy) in str(error.value)


def test_an_incomplete_tokenizer_is_a_startup_error(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    (tmp_path / "vocab.json").write_text('{"a": 0}')
    with pytest.raises(StartupError, match="cannot load the tokenizer"):
        load_tokenizer(tmp_path)


def test_encoding_is_that_of_the_file(tokenizer: Tokenizer, encode: Encode) -> None:
    text = "TensorFlow is 東京 😀"
    assert tokenizer.encode(text) == encode(text)


def test_truncation_in_the_file_is_ignored(copy: Path, encode: Encode) -> None:
    file = str(copy / "tokenizer.json")
    truncating = tokenizers.Tokenizer.from_file(file)
    truncating.enable_truncation(max_length=4)
    truncating.save(file)
    loaded = load_tokenizer(copy)
    assert loaded is not None
    text = "TensorFlow is a library. " * 50
    assert loaded.encode(text) == encode(text)


def test_padding_in_the_file_is_ignored(copy: Path, encode: Encode) -> None:
    file = str(copy / "tokenizer.json")
    padding = tokenizers.Tokenizer.from_file(file)
    padding.enable_padding(length=128)
    padding.save(file)
    loaded = load_tokenizer(copy)
    assert loaded is not None
    assert loaded.encode("short") == encode("short")


def test_a_text_over_the_checkpoints_length_is_not_cut(copy: Path, encode: Encode) -> None:
    config = copy / "tokenizer_config.json"
    config.write_text(config.read_text().replace("{", '{"model_max_length": 8,', 1))
    loaded = load_tokenizer(copy)
    assert loaded is not None
    assert loaded.encode("é" * 100) == encode("é" * 100)


def test_encoding_gives_the_same_tokens_from_many_threads(
    tokenizer: Tokenizer, encode: Encode
) -> None:
    texts = [f"{index} naïve 東京 😀 " * (index % 7 + 1) for index in range(100)]

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(tokenizer.encode, texts)) == [encode(text) for text in texts]


def test_words_are_tokenized_separately_and_unchanged(tokenizer: Tokenizer, encode: Encode) -> None:
    words = ["graph", " graph", "😀", ""]
    assert tokenizer.encode_words(words) == [encode(word) for word in words]


def test_words_get_no_special_tokens(copy: Path, encode: Encode) -> None:
    file = str(copy / "tokenizer.json")
    framing = tokenizers.Tokenizer.from_file(file)
    framing.post_processor = tokenizers.processors.TemplateProcessing(
        single="$A <|endoftext|>", special_tokens=[("<|endoftext|>", 0)]
    )
    framing.save(file)
    loaded = load_tokenizer(copy)
    assert loaded is not None
    assert loaded.encode("graph") == [*encode("graph"), 0]
    assert loaded.encode_words(["graph"]) == [encode("graph")]


def test_decoding_leaves_out_special_tokens(tokenizer: Tokenizer, encode: Encode) -> None:
    end = encode("<|endoftext|>")
    assert len(end) == 1
    assert tokenizer.decode([*encode("the"), *end, *encode(" end")]) == "the end"


def test_decoding_keeps_spaces_before_punctuation(tokenizer: Tokenizer, encode: Encode) -> None:
    assert tokenizer.decode(encode("it 's , well , odd .")) == "it 's , well , odd ."


def test_the_bytes_of_tokens_make_up_any_text(tokenizer: Tokenizer, encode: Encode) -> None:
    text = "é 東京 😀 𝄞."
    parts = [tokenizer.token_bytes(token) for token in encode(text)]
    assert b"".join(filter(None, parts)) == text.encode()
    assert len(parts) > len(text)


def test_tokens_of_bytes_are_these_bytes(tmp_path: Path) -> None:
    spaced = with_byte_fallback(tmp_path)
    ids = [spaced.token_ids[piece] for piece in ("▁a", "<0xC3>", "<0xA9>", "</s>")]
    assert [spaced.token_bytes(token) for token in ids] == [b" a", b"\xc3", b"\xa9", b"</s>"]


def test_the_bytes_of_an_unknown_token_are_not_known(tokenizer: Tokenizer) -> None:
    assert tokenizer.token_bytes(100_000) is None


def test_a_tokenizer_without_a_class_is_named_by_its_algorithm(tokenizer: Tokenizer) -> None:
    assert tokenizer.name == "BPE"


# A tokenizer of T5.


@pytest.fixture
def t5(tmp_path: Path) -> Tokenizer:
    """A tokenizer of a few words, as Transformers saves it."""
    words = ("▁", "▁the", "▁house", "▁is", "▁wonderful", "s", "e", ".")
    vocab = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *((word, -3.0) for word in words)]
    transformers.T5Tokenizer(vocab=vocab, extra_ids=2).save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "t5"}')
    return Tokenizer(tmp_path)


def test_a_tokenizer_is_named_by_its_class(t5: Tokenizer) -> None:
    assert t5.name == "T5Tokenizer"


def test_a_source_ends_with_the_end_token(t5: Tokenizer) -> None:
    assert t5.encode("the house is wonderful.") == [4, 5, 6, 7, 10, 1]


def test_a_decoders_prompt_has_no_special_tokens(t5: Tokenizer) -> None:
    assert t5.encode_words(["the house"]) == [[4, 5]]


def test_streamed_words_keep_their_spaces(t5: Tokenizer) -> None:
    detokenizer = t5.detokenizer()
    texts = [detokenizer.push([token]) for token in (4, 5, 6, 7, 10)]
    assert "".join([*texts, detokenizer.finish()]) == "the house is wonderful."
    assert texts[1] == " house"
