"""Checks of sources and decoders' prompts, for models with an encoder."""

from __future__ import annotations

from typing import Any

import pytest

from harness.requests import ANSWERING, prepared, run_of, violations
from shaperouter.v1 import generation_pb2
from shaperouter_service.errors import Violation


def request_of(**fields: Any) -> generation_pb2.GenerateRequest:
    return generation_pb2.GenerateRequest(**fields)


def test_text_is_the_source_and_the_prompt_the_decoders_start() -> None:
    found = prepared(request_of(text="abc"), ANSWERING)
    assert (list(found.source), list(found.prompt)) == ([1, 2, 3], [0])


@pytest.mark.parametrize(
    ("fields", "prompt"),
    [
        ({"decoder_text": "ab"}, [0, 51, 52]),
        ({"decoder_token_ids": run_of(7, 8)}, [0, 7, 8]),
        # As in Transformers, a prompt that begins with the start token gets no second one.
        ({"decoder_token_ids": run_of(0, 8)}, [0, 8]),
    ],
)
def test_a_decoders_prompt_comes_after_its_start(fields: dict[str, Any], prompt: list[int]) -> None:
    assert list(prepared(request_of(text="abc", **fields), ANSWERING).prompt) == prompt


def test_source_and_decoders_prompt_go_to_the_worker() -> None:
    found = prepared(request_of(token_ids=run_of(4, 5), decoder_token_ids=run_of(6)), ANSWERING)
    (run,) = found.runs("id", "client", reads_along=True)
    assert (list(run.source_token_ids), list(run.token_ids)) == ([4, 5], [0, 6])


@pytest.mark.parametrize(
    ("fields", "text", "token_ids"),
    [
        ({}, "<0>", [0]),
        ({"decoder_text": "ab"}, "ab", [0, 51, 52]),
        ({"decoder_token_ids": run_of(7)}, "<0><7>", [0, 7]),
    ],
)
def test_the_echo_is_the_decoders_prompt(
    fields: dict[str, Any], text: str, token_ids: list[int]
) -> None:
    request = request_of(text="abc", **fields)
    request.options.echo = True
    echo = prepared(request, ANSWERING).echo
    assert echo is not None
    assert (echo.text, list(echo.token_ids)) == (text, token_ids)


def test_a_source_takes_no_room_from_what_is_generated() -> None:
    request = request_of(text=16 * "a", options=generation_pb2.GenerationOptions())
    request.options.max_new_tokens = 31
    assert prepared(request, ANSWERING).options["max_new_tokens"] == 31


@pytest.mark.parametrize(
    ("fields", "field", "description"),
    [
        (
            {"text": 17 * "a"},
            "text",
            "must have at most 16 tokens (max_source_length of answering), got 17",
        ),
        (
            {"token_ids": run_of(*17 * [1])},
            "token_ids.ids",
            "must have at most 16 tokens (max_source_length of answering), got 17",
        ),
        (
            {"token_ids": run_of(100)},
            "token_ids.ids[0]",
            "must be from 0 to 99 (vocab_size - 1), got 100",
        ),
        ({}, "text", "one of text, token_ids and messages must be set, got none"),
        ({"text": "a", "decoder_text": ""}, "decoder_text", "must not be empty"),
        (
            {"text": "a", "decoder_text": "a", "decoder_token_ids": run_of(1)},
            "decoder_text",
            "must not be set together with decoder_token_ids",
        ),
        (
            {"text": "a", "decoder_token_ids": run_of()},
            "decoder_token_ids.ids",
            "must not be empty, got 0 ids",
        ),
        (
            {"text": "a", "decoder_token_ids": run_of(1, -1)},
            "decoder_token_ids.ids[1]",
            "must be from 0 to 99 (vocab_size - 1), got -1",
        ),
        (
            {"text": "a", "decoder_token_ids": run_of(*31 * [1])},
            "decoder_token_ids.ids",
            "must have at most 31 tokens (max_length of answering less one to generate), got 32",
        ),
    ],
)
def test_what_is_wrong_with_a_source_or_a_decoders_prompt_is_told(
    fields: dict[str, Any], field: str, description: str
) -> None:
    (found,) = violations(request_of(**fields), ANSWERING)
    assert (found.field, found.description) == (field, description)


@pytest.mark.parametrize("field", ["decoder_text", "decoder_token_ids"])
def test_a_model_without_an_encoder_takes_no_decoders_prompt(field: str) -> None:
    value = "a" if field == "decoder_text" else run_of(1)
    found = violations(request_of(text="abc", **{field: value}))
    description = "must not be set: model tiny has no encoder"
    assert found == (Violation(field=field, description=description),)
