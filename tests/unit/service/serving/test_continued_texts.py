"""Texts that continue a prompt keep the space between both; answers to conversations have none."""

import asyncio
import dataclasses

import numpy as np
import pytest

from harness.requests import MODEL, with_ids, with_text
from harness.sentencepiece import with_byte_fallback
from shaperouter.v1 import generation_pb2
from shaperouter_service.serving.generation.preparation import PreparedRequest, prepare
from shaperouter_service.text import ClientTokenizer, Tokenizer, TokenizerThreads
from shaperouter_service.wire.generation import generation_from_message

TEXT = with_text("ab")
# Its tokens have no text.
SILENT = with_ids(1, 1)
CHAT = generation_pb2.GenerateRequest(
    messages=[generation_pb2.ChatMessage(role="user", content="ab")]
)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return with_byte_fallback(tmp_path_factory.mktemp("tokenizer"))


def _prepared(
    tokenizer: Tokenizer, request: generation_pb2.GenerateRequest, *choices: str
) -> PreparedRequest:
    asked = generation_pb2.GenerateRequest()
    asked.CopyFrom(request)
    asked.options.choices.extend(choices)
    model = dataclasses.replace(MODEL, vocab_size=len(tokenizer.token_ids))
    client = ClientTokenizer(tokenizer, TokenizerThreads(), "client")
    return asyncio.run(prepare(generation_from_message(asked), model, client))


@pytest.mark.parametrize(
    ("prompt", "text"), [(TEXT, " b"), (SILENT, "b"), (CHAT, "b")], ids=["text", "silent", "chat"]
)
def test_only_a_text_after_text_begins_with_a_space(
    llama: Tokenizer, prompt: generation_pb2.GenerateRequest, text: str
) -> None:
    prepared = _prepared(llama, prompt)
    detokenizer = llama.detokenizer(prepared.context)
    assert detokenizer.push([llama.token_ids["▁b"]]) == text
    (run,) = prepared.runs("id", "client", reads_along=True)
    assert run.continues_text == (prompt is TEXT)


@pytest.mark.parametrize(
    ("prompt", "value", "first"),
    [
        (TEXT, "ab", {"b", "a", "ab"}),
        (TEXT, " ab", {"b", "▁", "▁a", "▁ab"}),
        (SILENT, "ab", {"b", "a", "ab", "▁", "▁b", "▁a", "▁ab"}),
        (CHAT, "ab", {"b", "a", "ab", "▁", "▁b", "▁a", "▁ab"}),
    ],
    ids=["text", "text and space", "silent", "chat"],
)
def test_a_constraint_begins_where_the_text_does(
    llama: Tokenizer, prompt: generation_pb2.GenerateRequest, value: str, first: set[str]
) -> None:
    prepared = _prepared(llama, prompt, value, "b")
    size = len(llama.token_ids)
    constraint = llama.constrained_vocabulary(size).constraint(prepared.grammar, [1], ())
    allowed = np.flatnonzero(np.unpackbits(constraint.allowed[0], bitorder="little"))
    pieces = {piece for piece, token in llama.token_ids.items() if token in allowed}
    assert {piece for piece in pieces if not piece.startswith("<0x")} == first
