"""Bad requests are refused with what was wrong, and never reach a worker."""

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

MIB = 1024 * 1024


def _short(value: str) -> str:
    return ascii(value[:8])


def test_a_violation_names_field_limit_and_value(play: Play, detail: Detail) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        options = generation_pb2.GenerationOptions(max_new_tokens=100)
        for call in (router.generate(options=options), router.stream(options=options)):
            error = await router.error(call)
            assert error.code() is StatusCode.INVALID_ARGUMENT
            (violation,) = detail(error, error_details_pb2.BadRequest).field_violations
            assert violation.field == "options.max_new_tokens"
            assert "63" in violation.description
            assert "100" in violation.description
        assert not worker.requests

    play(scenario)


def test_an_unknown_model_is_not_found(play: Play, detail: Detail) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        for call in (router.generate(model="gpt3"), router.stream(model="gpt3")):
            error = await router.error(call)
            assert error.code() is StatusCode.NOT_FOUND
            assert "'gpt3'; this service has tiny" in str(error.details())
            assert detail(error, error_details_pb2.ErrorInfo).reason == "UNKNOWN_MODEL"

    play(scenario)


@pytest.mark.parametrize("model", ["东京", "50%\n", "\u0000", "x" * 100_000], ids=_short)
def test_a_strange_name_is_not_found_either(play: Play, detail: Detail, model: str) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        error = await router.error(router.generate(model=model))
        assert error.code() is StatusCode.NOT_FOUND
        assert detail(error, error_details_pb2.ErrorInfo).reason == "UNKNOWN_MODEL"

    play(scenario)


def test_many_violations_still_reach_the_caller(play: Play, detail: Detail) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        options = generation_pb2.GenerationOptions(eos_token_ids=[-1] * 1000)
        error = await router.error(router.generate(options=options))
        assert error.code() is StatusCode.INVALID_ARGUMENT
        violations = detail(error, error_details_pb2.BadRequest).field_violations
        assert violations[0].field.startswith("options.eos_token_ids")

    play(scenario)


def test_text_that_is_not_utf8_is_an_invalid_argument(play: Play, detail: Detail) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        call: Any = router.channel.unary_unary("/shaperouter.v1.GenerationService/Generate")
        error = await router.error(call(b"\x12\x04caf\xe9"))
        assert error.code() is StatusCode.INVALID_ARGUMENT
        (violation,) = detail(error, error_details_pb2.BadRequest).field_violations
        assert violation.field == "text"

    play(scenario)


def test_bytes_that_are_no_message_are_an_invalid_argument(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        call: Any = router.channel.unary_stream("/shaperouter.v1.GenerationService/GenerateStream")
        error = await router.error(call(b"junk"))
        assert error.code() is StatusCode.INVALID_ARGUMENT

    play(scenario)


def test_a_message_over_the_limit_is_refused_and_the_service_goes_on(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        error = await router.error(router.generate(text="x" * (5 * MIB)))
        assert error.code() is StatusCode.INVALID_ARGUMENT
        assert f"at most {MIB} bytes, got {5 * MIB + 5}" in str(error.details())
        await router.generate()

    play(scenario)
