"""Requests that name the languages of a translation."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from harness.requests import ANSWERING, MODEL, prepared, run_of, violations
from shaperouter.v1 import generation_pb2
from shaperouter_service.errors import Violation
from shaperouter_service.generation.option import NO_TOKEN

MUTE = dataclasses.replace(ANSWERING, name="mute", tokenizer="", characters_per_token=0)


def request_of(options: dict[str, Any], **fields: Any) -> generation_pb2.GenerateRequest:
    return generation_pb2.GenerateRequest(
        **({"text": "abc"} | fields), options=generation_pb2.GenerationOptions(**options)
    )


def test_the_source_language_is_in_the_source() -> None:
    found = prepared(request_of({"source_language": "fr"}), ANSWERING)
    assert list(found.source) == [42, 1, 2, 3, 41]
    assert found.options["forced_bos_token_id"] == NO_TOKEN


def test_the_target_language_is_the_first_new_token() -> None:
    found = prepared(request_of({"target_language": "fr"}), ANSWERING)
    assert list(found.source) == [1, 2, 3]
    assert found.options["forced_bos_token_id"] == 42


def test_a_target_language_may_begin_the_source() -> None:
    found = prepared(request_of({"target_language": "de"}), ANSWERING)
    assert list(found.source) == [26, 1, 1, 2, 3]
    assert found.options["forced_bos_token_id"] == NO_TOKEN


def test_a_target_language_needs_no_text() -> None:
    request = generation_pb2.GenerateRequest(
        token_ids=run_of(7), options=generation_pb2.GenerationOptions(target_language="en")
    )
    assert prepared(request, ANSWERING).options["forced_bos_token_id"] == 40


@pytest.mark.parametrize(
    ("options", "fields", "told"),
    [
        ({"source_language": "xx"}, {}, "must be one of en, fr, got 'xx'"),
        ({"target_language": "xx"}, {}, "must be one of en, fr, de, got 'xx'"),
        ({"source_language": "x" * 99}, {}, f"must be one of en, fr, got '{'x' * 63}… (101 charac"),
        (
            {"target_language": "fr", "forced_bos_token_id": 3},
            {},
            "must not be set together with forced_bos_token_id, got 'fr'",
        ),
        (
            {"target_language": "fr"},
            {"decoder_text": "ab"},
            "must not be set together with decoder_text or decoder_token_ids, got 'fr'",
        ),
    ],
)
def test_languages_that_cannot_be_used_are_refused(
    options: dict[str, Any], fields: dict[str, Any], told: str
) -> None:
    (violation,) = violations(request_of(options, **fields), ANSWERING)
    assert violation.field == f"options.{next(iter(options))}"
    assert violation.description.startswith(told)


@pytest.mark.parametrize("name", ["source_language", "target_language"])
def test_token_ids_have_their_language(name: str) -> None:
    request = generation_pb2.GenerateRequest(
        token_ids=run_of(7),
        options=generation_pb2.GenerationOptions(**{name: "de" if name[0] == "t" else "fr"}),
    )
    (violation,) = violations(request, ANSWERING)
    assert violation.description.startswith("must not be set together with token_ids")


@pytest.mark.parametrize("name", ["source_language", "target_language"])
def test_models_without_languages_refuse_them(name: str) -> None:
    options = generation_pb2.GenerationOptions(**{name: "fr"})
    request = generation_pb2.GenerateRequest(text="abc", options=options)
    (violation,) = violations(request, MODEL)
    rule = f"must not be set: model {MODEL.name} has no encoder, got fr"
    assert violation == Violation(field=f"options.{name}", description=rule)
    mute = generation_pb2.GenerateRequest(token_ids=run_of(7), options=options)
    first = violations(mute, MUTE)[0]
    assert first.description == "must not be set: model mute has no such languages, got 'fr'"
