"""Texts and pairs are tokenized and cut as Transformers does it."""

import itertools
from typing import Any

import pytest
import tokenizers
from tokenizers import models, pre_tokenizers, processors

from shaperouter_service.text.text_encoding import encode_texts

WORDS = ["a", "b", "c", "d", "e"]


def make_tokenizer() -> Any:
    """A word-level tokenizer that adds BERT's special tokens."""
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: index for index, word in enumerate(["[PAD]", "[CLS]", "[SEP]", *WORDS])}
    backend = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="[PAD]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    return PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="[PAD]")


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return make_tokenizer()


@pytest.fixture(scope="module")
def reference() -> Any:
    """Another one, because Transformers keeps the truncation of a call."""
    return make_tokenizer()


TEXTS = [" ".join(WORDS[:count]) for count in (1, 2, 3, 5)]


@pytest.mark.parametrize("limit", [None, 3, 4, 5, 6, 7, 8])
def test_texts_are_those_of_transformers(tokenizer: Any, reference: Any, limit: int | None) -> None:
    found = encode_texts(tokenizer, TEXTS, None, limit)
    due = reference(TEXTS, truncation=limit is not None, max_length=limit)
    assert [list(text.ids) for text in found] == due["input_ids"]


@pytest.mark.parametrize("limit", [None, 3, 4, 5, 6, 7, 8, 9])
def test_pairs_are_those_of_transformers(tokenizer: Any, reference: Any, limit: int | None) -> None:
    texts, pairs = zip(*itertools.product(TEXTS, TEXTS), strict=True)
    found = encode_texts(tokenizer, texts, pairs, limit)
    due = reference(
        list(texts),
        list(pairs),
        truncation=limit is not None,
        max_length=limit,
        return_token_type_ids=True,
    )
    assert [list(text.ids) for text in found] == due["input_ids"]
    assert [list(text.type_ids) for text in found] == due["token_type_ids"]


def test_cutting_leaves_the_tokenizer_as_it_was(tokenizer: Any) -> None:
    encode_texts(tokenizer, TEXTS, None, 3)
    assert len(encode_texts(tokenizer, TEXTS, None, None)[-1].ids) == len(WORDS) + 2
