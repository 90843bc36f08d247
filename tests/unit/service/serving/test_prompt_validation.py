"""Checks of prompts: what is refused, and what is said about it."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from harness.requests import MODEL, MUTE_MODEL, Letters, prepared, violations, with_ids, with_text
from shaperouter.v1 import generation_pb2
from shaperouter_service.errors import InvalidRequestError
from shaperouter_service.serving.generation.preparation import prepare
from shaperouter_service.text import ClientTokenizer
from shaperouter_service.wire.generation import generation_from_message

# Request, field that is blamed, what the description must hold: the limit and the value.
PROMPT_VIOLATIONS: list[tuple[str, generation_pb2.GenerateRequest, str, list[str]]] = [
    ("no prompt", generation_pb2.GenerateRequest(), "text", ["text", "token_ids", "none"]),
    (
        "both",
        generation_pb2.GenerateRequest(text="x", token_ids=generation_pb2.TokenIds(ids=[1])),
        "text",
        ["together with token_ids"],
    ),
    (
        "both, empty",
        generation_pb2.GenerateRequest(text="", token_ids=generation_pb2.TokenIds()),
        "text",
        ["together with token_ids"],
    ),
    ("empty text", with_text(""), "text", ["must not be empty"]),
    ("no ids", with_ids(), "token_ids.ids", ["must not be empty", "got 0"]),
    ("id at the end", with_ids(1, 100), "token_ids.ids[1]", ["0 to 99", "got 100"]),
    ("negative id", with_ids(-1), "token_ids.ids[0]", ["0 to 99", "got -1"]),
    ("largest id", with_ids(2**31 - 1), "token_ids.ids[0]", ["0 to 99", "got 2147483647"]),
    ("long text", with_text("x" * 32), "text", ["at most 31", "tiny", "got 32"]),
    ("long ids", with_ids(*[1] * 500), "token_ids.ids", ["at most 31", "tiny", "got 500"]),
]


@pytest.mark.parametrize(
    ("request_", "field", "told"),
    [row[1:] for row in PROMPT_VIOLATIONS],
    ids=[row[0] for row in PROMPT_VIOLATIONS],
)
def test_a_bad_prompt_is_told(
    request_: generation_pb2.GenerateRequest, field: str, told: list[str]
) -> None:
    (violation,) = violations(request_)
    assert violation.field == field
    assert [part for part in told if part not in violation.description] == []


def test_text_that_gives_no_token_is_told() -> None:
    class Nothing(Letters):
        async def encode(self, text: str) -> list[int]:
            return []

    with pytest.raises(InvalidRequestError, match="text: must not be empty, got 0 tokens"):
        asyncio.run(
            prepare(
                generation_from_message(with_text("x")), MODEL, cast("ClientTokenizer", Nothing())
            )
        )


def test_text_of_tokens_that_the_model_does_not_have_is_told() -> None:
    class Larger(Letters):
        async def encode(self, text: str) -> list[int]:
            return [1, 100, 101]

    with pytest.raises(InvalidRequestError, match=r"vocab_size of tiny - 1\), got 100"):
        asyncio.run(
            prepare(
                generation_from_message(with_text("x")), MODEL, cast("ClientTokenizer", Larger())
            )
        )


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (with_text("x"), "text"),
        (with_ids(1, stop=["x"]), "options.stop"),
        (with_ids(1, bad_words=["x"]), "options.bad_words"),
    ],
    ids=["prompt", "stop", "bad words"],
)
def test_text_for_a_model_without_a_tokenizer_is_told(
    request_: generation_pb2.GenerateRequest, field: str
) -> None:
    (violation,) = violations(request_, MUTE_MODEL)
    assert violation.field == field
    assert "mute has no tokenizer" in violation.description


@pytest.mark.parametrize("request_", [with_text("x"), with_text(" "), with_ids(0, 99)], ids=str)
def test_a_good_prompt_passes(request_: generation_pb2.GenerateRequest) -> None:
    assert prepared(request_).prompt


def test_token_ids_need_no_tokenizer() -> None:
    assert prepared(with_ids(0, 99), MUTE_MODEL).prompt == [0, 99]
