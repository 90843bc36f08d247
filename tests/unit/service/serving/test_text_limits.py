"""Texts with too many characters for any tokenizer are refused before they are tokenized."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import grpc
import pytest

from harness.requests import ANSWERING, MODEL, Letters, violations, with_ids
from harness.router import wait_until
from harness.routing import LADDERS
from harness.transcripts import TOKENS
from harness.waiting import TIMEOUT
from shaperouter.v1 import generation_pb2, model_pb2, transcription_pb2
from shaperouter_service.errors import InvalidRequestError
from shaperouter_service.routing.served_model import ServedModel
from shaperouter_service.serving.generation.preparation import prepare
from shaperouter_service.serving.transcription.options import (
    initial_prompt_violations,
    resolve_transcription,
)
from shaperouter_service.text import ClientTokenizer, Tokenizer, load_tokenizer
from shaperouter_service.wire.generation import GenerateAny, generation_from_message
from shaperouter_service.wire.transcription import transcription_options_from_message

if TYPE_CHECKING:
    from harness.fake_worker import FakeWorker
    from harness.router import Play, Router

PER_TOKEN = MODEL.characters_per_token
LONGEST_PROMPT = (MODEL.max_length - 1) * PER_TOKEN
LONGEST_SOURCE = ANSWERING.max_source_length * PER_TOKEN
LONGEST_WORD = 8 * PER_TOKEN


class Unasked(Letters):
    """A tokenizer that must not be called."""

    async def encode(self, text: str) -> list[int]:
        raise AssertionError(f"{len(text)} characters are tokenized")


class Short(Letters):
    """A tokenizer that turns every text into one token, like one that drops spaces."""

    async def encode(self, text: str) -> list[int]:
        return [1]


def request_of(**fields: Any) -> generation_pb2.GenerateRequest:
    return generation_pb2.GenerateRequest(**fields)


def with_word(word: str) -> generation_pb2.GenerateRequest:
    return with_ids(1, bad_words=[word])


def answer_to(decoder_text: str) -> generation_pb2.GenerateRequest:
    ids = generation_pb2.TokenIds(ids=[1])
    return request_of(token_ids=ids, decoder_text=decoder_text)


def prompt(text: str) -> generation_pb2.GenerateRequest:
    return request_of(text=text)


# How a text is sent, to which model, the field that is blamed, the limit and the reason for it.
CASES: list[tuple[Any, ServedModel, str, int, str]] = [
    (prompt, MODEL, "text", LONGEST_PROMPT, "31 tokens, max_length of tiny less one to generate"),
    (prompt, ANSWERING, "text", LONGEST_SOURCE, "16 tokens, max_source_length of answering"),
    (answer_to, ANSWERING, "decoder_text", LONGEST_PROMPT, "31 tokens, max_length of answering"),
    (with_word, MODEL, "options.bad_words[0]", LONGEST_WORD, "8 tokens, the maximum of a banned"),
]


@pytest.mark.parametrize(
    ("make", "model", "field", "limit", "reason"),
    CASES,
    ids=["prompt", "source", "decoder_text", "bad_words"],
)
def test_a_text_over_the_limit_is_refused_without_tokenizing_it(
    make: Any, model: ServedModel, field: str, limit: int, reason: str
) -> None:
    (violation,) = refused(make(" " * (limit + 1)), model)
    assert violation.field == field
    assert f"must have at most {limit} characters (128 for each of {reason}" in (
        violation.description
    )
    assert violation.description.endswith(f", got {limit + 1}")


def refused(request: GenerateAny, model: ServedModel) -> Sequence[Any]:
    with pytest.raises(InvalidRequestError) as error:
        asyncio.run(
            prepare(generation_from_message(request), model, cast("ClientTokenizer", Unasked()))
        )
    return error.value.violations


@pytest.mark.parametrize(
    ("make", "model", "limit"),
    [(make, model, limit) for make, model, _, limit, _ in CASES],
    ids=["prompt", "source", "decoder_text", "bad_words"],
)
def test_a_text_at_the_limit_is_tokenized(make: Any, model: ServedModel, limit: int) -> None:
    request = make(" " * limit)
    assert asyncio.run(
        prepare(generation_from_message(request), model, cast("ClientTokenizer", Short()))
    ).prompt


def test_the_limit_is_of_characters_and_not_of_bytes() -> None:
    assert len("東".encode()) > 1
    assert asyncio.run(
        prepare(
            generation_from_message(prompt("東" * LONGEST_PROMPT)),
            MODEL,
            cast("ClientTokenizer", Short()),
        )
    ).prompt


def test_too_many_ids_of_a_decoders_prompt_are_counted() -> None:
    ids = generation_pb2.TokenIds(ids=[7] * 100_000)
    (violation,) = violations(
        request_of(token_ids=generation_pb2.TokenIds(ids=[1]), decoder_token_ids=ids), ANSWERING
    )
    assert violation.field == "decoder_token_ids.ids"
    assert violation.description.endswith("got 100000")


def test_an_initial_prompt_over_the_limit_is_told_with_all_else_that_is_wrong() -> None:
    model = ServedModel(ladders=LADDERS, name="whisper", max_length=448, characters_per_token=128)
    assert not list(initial_prompt_violations(model, "x" * 448 * 128))
    with pytest.raises(InvalidRequestError) as error:
        resolve_transcription(
            transcription_options_from_message(transcription_pb2.TranscriptionOptions(num_beams=9)),
            TOKENS,
            names={},
            initial_prompt=[],
            max_beams=8,
            step_seconds=None,
            violations=list(initial_prompt_violations(model, "x" * (448 * 128 + 1))),
        )
    assert [violation.field for violation in error.value.violations] == [
        "options.initial_prompt",
        "options.num_beams",
    ]
    assert error.value.violations[0].description == (
        "must have at most 57344 characters (128 for each of 448 tokens, max_length of whisper), "
        "got 57345"
    )


# What a tokenizer says of its vocabulary.


def test_a_short_vocabulary_has_128_characters_a_token(tokenizer: Tokenizer) -> None:
    assert tokenizer.characters_per_token == 128


def test_a_longer_token_raises_the_limit_so_that_all_that_fits_is_tokenized(
    checkpoint: Path, tmp_path: Path
) -> None:
    directory = shutil.copytree(checkpoint, tmp_path / "copy")
    file = directory / "tokenizer.json"
    content = json.loads(file.read_text())
    content["added_tokens"].append(
        dict(content["added_tokens"][0], id=len(content["model"]["vocab"]), content="=" * 200)
    )
    file.write_text(json.dumps(content))
    loaded = load_tokenizer(directory)
    assert loaded is not None
    assert loaded.characters_per_token == 200
    tokens = 5
    text = "=" * 200 * tokens
    assert len(loaded.encode(text)) == tokens
    assert len(text) <= tokens * loaded.characters_per_token


# Through a router.


def test_the_model_service_tells_the_limit(play: Play) -> None:
    async def scenario(router: Router, _: FakeWorker) -> None:
        response = await router.models.GetModel(model_pb2.GetModelRequest())
        assert response.model.characters_per_token == 128

    play(scenario)


def test_a_large_message_is_refused_without_tokenizing_them(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    async def scenario(router: Router, worker: FakeWorker) -> None:
        monkeypatch.setattr(Tokenizer, "encode", lambda _, text: asked.append(len(text)))
        monkeypatch.setattr(Tokenizer, "encode_words", lambda _, words: asked.append(len(words)))
        for fields in (
            {"text": " " * (2**20 - 100)},
            {"options": generation_pb2.GenerationOptions(bad_words=["x" * (2**19 - 100)] * 2)},
        ):
            error = await router.error(router.generate(**fields))
            assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert "must have at most" in error.details()
        assert not worker.requests

    play(scenario)
    assert asked == []


@pytest.mark.parametrize(
    ("config", "code", "told"),
    [
        ('{"model_type": "gpt2"}', grpc.StatusCode.RESOURCE_EXHAUSTED, "larger than max"),
        ('{"model_type": "whisper"}', grpc.StatusCode.INVALID_ARGUMENT, "at most 1048576 bytes"),
    ],
    ids=["text alone", "recordings, too"],
)
def test_a_message_of_text_over_a_megabyte_is_not_parsed(
    play: Play, sockets: Path, config: str, code: grpc.StatusCode, told: str
) -> None:
    (sockets / "config.json").write_text(config)

    async def scenario(router: Router, _: FakeWorker) -> None:
        error = await router.error(router.generate(text="x" * 2**20))
        assert error.code() is code
        assert told in error.details()
        ids = generation_pb2.TokenIds(ids=[1] * (2**20 - 100))
        error = await router.error(router.generate(token_ids=ids))
        assert "must have at most 63 tokens" in error.details()

    # The models of such a router are in the directory of the sockets.
    play(scenario, text=False)


def test_a_text_whose_deadline_passes_while_it_waits_is_never_tokenized(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    holding, let_go = threading.Event(), threading.Event()
    asked: list[str] = []

    def encode(_: Tokenizer, text: str) -> list[int]:
        asked.append(text[:4])
        holding.set()
        assert let_go.wait(TIMEOUT)
        return [1]

    async def scenario(router: Router, worker: FakeWorker) -> None:
        monkeypatch.setattr(Tokenizer, "encode", encode)
        # Neither is short enough to be tokenized by the event loop.
        held = asyncio.ensure_future(router.generate(text="held".ljust(600)))
        try:
            assert await asyncio.to_thread(holding.wait, TIMEOUT)
            error = await router.error(router.generate(text="late".ljust(600), timeout=5.0))
            assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            await wait_until(
                lambda: router.metric("requests_total", model="tiny", code="DEADLINE_EXCEEDED") == 1
            )
            # Meanwhile what is short is served.
            await router.generate(token_ids=generation_pb2.TokenIds(ids=[1]))
        finally:
            let_go.set()
        await held
        assert router.metric("tokenize_queue_time_seconds_count", model="tiny") == 2
        assert router.metric("tokenize_queue_time_seconds_sum", model="tiny") >= 0.05
        assert router.metric("tokenize_time_seconds_count", model="tiny") == 2

    play(scenario)
    assert asked == ["held"]
