"""Conversion of statuses to errors, for calls and streams of both clients."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo

from harness.waiting import TIMEOUT
from shaperouter import (
    AsyncClient,
    Client,
    DeadlineError,
    FieldViolation,
    InternalError,
    InvalidArgumentError,
    MessageTooLargeError,
    ModelNotFoundError,
    OverloadedError,
    PermissionDeniedError,
    ShaperouterError,
    UnauthenticatedError,
    UnavailableError,
)

if TYPE_CHECKING:
    from conftest import FakeShaperouter

RETRY_INFO = RetryInfo(retry_delay=Duration(seconds=1, nanos=500_000_000))
VIOLATION = BadRequest.FieldViolation(
    field="options.temperature", description="must be above 0, got -1"
)

Call = Callable[[str], object]


def generate(address: str) -> object:
    with Client(address, timeout=TIMEOUT, retries=0) as client:
        return client.generate("x")


def stream(address: str) -> object:
    with Client(address, timeout=TIMEOUT, retries=0) as client:
        return list(client.stream("x"))


def async_generate(address: str) -> object:
    async def call() -> object:
        async with AsyncClient(address, timeout=TIMEOUT, retries=0) as client:
            return await client.generate("x")

    return asyncio.run(call())


def async_stream(address: str) -> object:
    async def call() -> object:
        async with AsyncClient(address, timeout=TIMEOUT, retries=0) as client:
            return [delta async for delta in client.stream("x")]

    return asyncio.run(call())


every_call = pytest.mark.parametrize("call", [generate, stream, async_generate, async_stream])


def error_of(
    fake: FakeShaperouter, call: Call, step: Callable[[grpc.ServicerContext], None]
) -> ShaperouterError:
    fake.before_answer = step
    fake.script = [step]
    with pytest.raises(ShaperouterError) as caught:
        call(fake.address)
    return caught.value


@every_call
def test_invalid_argument_has_its_violations(fake: FakeShaperouter, call: Call) -> None:
    bad_request = BadRequest(field_violations=[VIOLATION])
    step = fake.fail(grpc.StatusCode.INVALID_ARGUMENT, "invalid argument", bad_request)
    error = error_of(fake, call, step)
    assert isinstance(error, InvalidArgumentError)
    assert error.violations == (
        FieldViolation(field="options.temperature", description="must be above 0, got -1"),
    )
    assert str(error) == "invalid argument; options.temperature: must be above 0, got -1"
    assert error.code is grpc.StatusCode.INVALID_ARGUMENT
    assert error.request_id == "req-7"
    assert not error.retriable


def test_violations_in_the_message_are_not_repeated(fake: FakeShaperouter) -> None:
    message = "options.temperature: must be above 0, got -1"
    bad_request = BadRequest(field_violations=[VIOLATION])
    step = fake.fail(grpc.StatusCode.INVALID_ARGUMENT, message, bad_request)
    assert str(error_of(fake, generate, step)) == message


@every_call
def test_full_queue_is_an_overloaded_error_with_retry_after(
    fake: FakeShaperouter, call: Call
) -> None:
    step = fake.fail(grpc.StatusCode.RESOURCE_EXHAUSTED, "queue: 64 requests wait", RETRY_INFO)
    error = error_of(fake, call, step)
    assert isinstance(error, OverloadedError)
    assert error.retry_after == 1.5
    assert error.retriable
    assert str(error) == "queue: 64 requests wait"


@every_call
def test_lost_worker_is_an_unavailable_error_with_retry_after(
    fake: FakeShaperouter, call: Call
) -> None:
    step = fake.fail(grpc.StatusCode.UNAVAILABLE, "worker-0 was lost", RETRY_INFO)
    error = error_of(fake, call, step)
    assert isinstance(error, UnavailableError)
    assert error.retry_after == 1.5
    assert error.retriable
    assert str(error) == "worker-0 was lost"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.NOT_FOUND, ModelNotFoundError),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, OverloadedError),
        (grpc.StatusCode.UNAVAILABLE, UnavailableError),
        (grpc.StatusCode.DEADLINE_EXCEEDED, DeadlineError),
        (grpc.StatusCode.INTERNAL, InternalError),
        (grpc.StatusCode.UNKNOWN, InternalError),
        (grpc.StatusCode.FAILED_PRECONDITION, InternalError),
        (grpc.StatusCode.PERMISSION_DENIED, PermissionDeniedError),
        (grpc.StatusCode.UNAUTHENTICATED, UnauthenticatedError),
    ],
)
@pytest.mark.parametrize("call", [generate, async_stream])
def test_errors_keep_their_status_codes(
    fake: FakeShaperouter, call: Call, code: grpc.StatusCode, kind: type[ShaperouterError]
) -> None:
    error = error_of(fake, call, fake.fail(code, "the reason"))
    assert type(error) is kind
    assert error.code is code
    assert error.retry_after is None
    assert "the reason" in str(error)


@pytest.mark.parametrize("call", [generate, async_generate, stream, async_stream])
def test_call_cancelled_by_the_service_is_retriable(fake: FakeShaperouter, call: Call) -> None:
    error = error_of(fake, call, fake.fail(grpc.StatusCode.CANCELLED, "CANCELLED"))
    assert type(error) is UnavailableError
    assert error.retriable


def test_other_details_and_damaged_details_are_ignored(fake: FakeShaperouter) -> None:
    other = fake.fail(grpc.StatusCode.UNAVAILABLE, "gone", ErrorInfo(reason="X"))
    assert str(error_of(fake, generate, other)) == "gone"

    def damaged(context: grpc.ServicerContext) -> None:
        context.set_trailing_metadata((("grpc-status-details-bin", b"\xff\xff"),))
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "wrong")

    error = error_of(fake, generate, damaged)
    assert isinstance(error, InvalidArgumentError)
    assert error.violations == ()


def test_request_id_is_read_from_the_trailers(fake: FakeShaperouter) -> None:
    fake.sends_header = False

    def step(context: grpc.ServicerContext) -> None:
        context.set_trailing_metadata((("x-request-id", "req-9"),))
        context.abort(grpc.StatusCode.INTERNAL, "broken")

    assert error_of(fake, generate, step).request_id == "req-9"


@every_call
def test_crash_of_the_service_is_an_internal_error(fake: FakeShaperouter, call: Call) -> None:
    def crash(context: grpc.ServicerContext) -> None:
        raise ZeroDivisionError("in the service")

    assert isinstance(error_of(fake, call, crash), InternalError)


def test_request_over_the_services_limit_is_too_large(client: Client) -> None:
    with pytest.raises(MessageTooLargeError, match="4194304") as caught:
        client.generate("x" * 5_000_000)
    assert caught.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert not caught.value.retriable


def test_response_over_the_clients_limit_is_too_large(
    fake: FakeShaperouter, client: Client
) -> None:
    fake.response.sequences[0].text = "x" * 70_000_000
    with pytest.raises(MessageTooLargeError, match="67108864"):
        client.generate("x")


def test_deadline_names_the_timeout_and_what_to_do(fake: FakeShaperouter, client: Client) -> None:
    fake.before_answer = fake.hold
    with pytest.raises(DeadlineError, match=r"timeout of 5 s.*longer timeout") as caught:
        client.generate("x", timeout=5)
    assert not caught.value.retriable
    assert fake.cancelled.wait(TIMEOUT)


def test_client_timeout_is_the_default_deadline(fake: FakeShaperouter) -> None:
    fake.before_answer = fake.hold
    with Client(fake.address, timeout=0.2) as client, pytest.raises(DeadlineError, match=r"0.2 s"):
        client.generate("x")


def test_deadline_refused_by_the_service_keeps_its_reason(fake: FakeShaperouter) -> None:
    reason = "the deadline ends 3 s before prefill 1x16 is compiled"
    error = error_of(fake, generate, fake.fail(grpc.StatusCode.DEADLINE_EXCEEDED, reason))
    assert str(error) == reason


@pytest.mark.parametrize("timeout", [0, -1, -0.5, float("nan"), float("-inf"), "5", True, [1]])
@pytest.mark.parametrize("call", ["generate", "stream", "models", "watch_graphs"])
def test_invalid_timeout_is_refused_with_its_value(
    fake: FakeShaperouter, client: Client, call: str, timeout: Any
) -> None:
    arguments = ["x"] if call in ("generate", "stream") else []
    rule = "must be a number of seconds above 0, or infinity for no limit"
    with pytest.raises(InvalidArgumentError) as caught:
        getattr(client, call)(*arguments, timeout=timeout)
    assert str(caught.value) == f"timeout: {rule}, got {timeout!r}"
    with pytest.raises(InvalidArgumentError, match="timeout: must be a number"):
        Client(fake.address, timeout=timeout)
    with pytest.raises(InvalidArgumentError, match="timeout: must be a number"):
        AsyncClient(fake.address, timeout=timeout)
    assert not fake.requests


@pytest.mark.parametrize("timeout", [float("inf"), 1e300, 10**400])
def test_infinite_timeout_means_no_deadline(client: Client, timeout: float) -> None:
    assert client.generate("x", timeout=timeout).text == " a library"


def test_errors_survive_pickling() -> None:
    violation = FieldViolation(field="a", description="b")
    error = InvalidArgumentError("a: b", violations=[violation], request_id="r")
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.violations, copy.request_id) == ("a: b", (violation,), "r")
    assert copy.code is grpc.StatusCode.INVALID_ARGUMENT
