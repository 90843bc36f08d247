"""Constraints of texts: what workers get, and what is refused before a worker gets anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from google.protobuf.message import Message
from google.rpc import error_details_pb2
from grpc import StatusCode, aio

from shaperouter.v1 import generation_pb2

if TYPE_CHECKING:
    from harness.fake_worker import FakeWorker
    from harness.router import Play, Router

Detail = Callable[[aio.AioRpcError, type[Message]], Any]
Options = generation_pb2.GenerationOptions

WRONG_WITHIN = (
    '{"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 2, "maximum": 1}}'
)


@pytest.mark.parametrize(
    "options",
    [
        Options(json_schema='{"type": "object"}'),
        Options(regex="[ab]+"),
        Options(choices=["yes", "no"]),
        Options(grammar='start: "a"+'),
    ],
    ids=lambda options: next(iter(options.ListFields()))[0].name,
)
def test_every_run_of_a_request_gets_the_grammar_of_its_constraint(
    play: Play, options: Options
) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        await router.generate(options=options)
        options.num_return_sequences, options.temperature = 2, 1.5
        await router.generate(options=options)
        assert len(worker.requests) == 3
        (grammar,) = {request.grammar for request in worker.requests}
        assert grammar

    play(scenario)


def test_a_request_without_a_constraint_has_no_grammar(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        await router.generate()
        assert not worker.requests[0].grammar

    play(scenario)


@pytest.mark.parametrize(
    ("options", "field", "told"),
    [
        (Options(regex=""), "regex", "must have from 1 to 65536 characters, got 0"),
        (Options(regex="a" * 65537), "regex", "must have from 1 to 65536 characters, got 65537"),
        (Options(choices=["a"] * 257), "choices", "must have at most 256 strings, got 257"),
        (Options(choices=["a", ""]), "choices[1]", "from 1 to 256 characters, got 0"),
        (Options(regex="(a"), "regex", "cannot be used: "),
        (Options(grammar="start: x"), "grammar", 'unknown name: "x"'),
        (Options(json_schema="{"), "json_schema", "must be a JSON schema: "),
        (Options(json_schema=WRONG_WITHIN), "json_schema.items", "minimum (2) is greater"),
        (Options(regex="a", grammar='start: "a"'), "grammar", "must not be set with regex"),
    ],
)
def test_a_constraint_that_cannot_be_used_is_refused(
    play: Play, detail: Detail, options: Options, field: str, told: str
) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        error = await router.error(router.generate(options=options))
        assert error.code() is StatusCode.INVALID_ARGUMENT
        (violation,) = detail(error, error_details_pb2.BadRequest).field_violations
        assert violation.field == f"options.{field}"
        assert told in violation.description
        assert not worker.requests

    play(scenario)


def test_a_model_without_a_tokenizer_follows_no_constraint(play: Play, detail: Detail) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        ids = generation_pb2.TokenIds(ids=[1])
        error = await router.error(router.generate(token_ids=ids, options=Options(regex="a")))
        (violation,) = detail(error, error_details_pb2.BadRequest).field_violations
        assert violation.field == "options.regex"
        assert "has no tokenizer" in violation.description

    play(scenario, text=False)
