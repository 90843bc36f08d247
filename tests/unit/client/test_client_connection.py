"""Reaching the service: addresses, retries, absence and closing."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import grpc
import pytest

from shaperouter import (
    AsyncClient,
    CallCancelledError,
    Client,
    InvalidArgumentError,
    UnavailableError,
)

if TYPE_CHECKING:
    from conftest import FakeShaperouter


def test_absent_service_is_told_within_seconds_and_how_to_start_one(nobody: str) -> None:
    start = time.monotonic()
    with Client(nobody) as client, pytest.raises(UnavailableError) as caught:
        client.generate("x")
    assert time.monotonic() - start < 8
    message = str(caught.value)
    assert message.startswith(f"no Shaperouter at {nobody}: ")
    assert "refused" in message
    assert "`shaperouterd serve`" in message
    assert caught.value.retriable
    assert caught.value.retry_after is None


@pytest.mark.usefixtures("hasty_retries")
def test_absent_unix_socket_is_told() -> None:
    with Client("unix:/nonexistent/socket") as client, pytest.raises(UnavailableError) as caught:
        client.models()
    assert "no Shaperouter at unix:/nonexistent/socket" in str(caught.value)
    assert "No such file" in str(caught.value)


def test_service_on_a_unix_socket_is_reached(fake: FakeShaperouter) -> None:
    with Client(fake.unix_address) as client:
        assert client.generate("x").text == " a library"


@pytest.mark.usefixtures("hasty_retries")
def test_unavailable_before_any_answer_is_retried(fake: FakeShaperouter) -> None:
    fake.sends_header = False

    def lost_twice(context: grpc.ServicerContext) -> None:
        if len(fake.requests) <= 2:
            context.abort(grpc.StatusCode.UNAVAILABLE, "worker-0 was lost")

    fake.before_answer = lost_twice
    with Client(fake.address, timeout=10) as client:
        client.generate("x")
    assert len(fake.requests) == 3


def test_a_stream_is_never_retried(fake: FakeShaperouter) -> None:
    fake.sends_header = False
    fake.script.insert(0, fake.fail(grpc.StatusCode.UNAVAILABLE, "shutting down"))
    with Client(fake.address) as client, pytest.raises(UnavailableError, match="shutting down"):
        list(client.stream("x"))
    assert len(fake.requests) == 1


@pytest.mark.usefixtures("hasty_retries")
def test_attempts_are_four(fake: FakeShaperouter) -> None:
    fake.sends_header = False
    fake.before_answer = fake.fail(grpc.StatusCode.UNAVAILABLE, "shutting down")
    with Client(fake.address) as client, pytest.raises(UnavailableError, match="shutting down"):
        client.generate("x")
    assert len(fake.requests) == 4


@pytest.mark.usefixtures("hasty_retries")
def test_overload_is_not_retried(fake: FakeShaperouter) -> None:
    fake.sends_header = False
    fake.before_answer = fake.fail(grpc.StatusCode.RESOURCE_EXHAUSTED, "queue is full")
    with Client(fake.address) as client, pytest.raises(Exception, match="queue is full"):
        client.generate("x")
    assert len(fake.requests) == 1


@pytest.mark.parametrize(
    "address",
    ["", "localhost", "http://localhost:50051", "localhost:", ":50051", "::1:50051", "a b:1", 5],
)
@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_malformed_address_is_refused_at_once(
    kind: type[Client | AsyncClient], address: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=r"address: must be host:port or unix:path"):
        kind(address)


@pytest.mark.parametrize(
    "address", ["host:1", "[::1]:50051", "unix:relative", "unix:///a/b", "dns:///host:5"]
)
def test_wellformed_address_is_accepted(address: str) -> None:
    with Client(address) as client:
        assert client.address == address


def test_address_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHAPEROUTER_ADDRESS", "elsewhere:1")
    assert Client().address == AsyncClient().address == "elsewhere:1"
    assert Client("here:2").address == "here:2"
    monkeypatch.delenv("SHAPEROUTER_ADDRESS")
    assert Client().address == AsyncClient().address == "127.0.0.1:50051"


def test_proxy_settings_do_not_catch_calls_to_this_machine(
    fake: FakeShaperouter, nobody: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"http://{nobody}")
    monkeypatch.delenv("no_proxy", raising=False)
    with Client(fake.address) as client:
        assert client.generate("x").text == " a library"


def test_closed_client_says_so(fake: FakeShaperouter) -> None:
    client = Client(fake.address)
    client.close()
    client.close()
    with pytest.raises(RuntimeError, match="the client is closed"):
        client.generate("x")
    with pytest.raises(RuntimeError, match="the client is closed"):
        client.stream("x")
    assert "closed" in repr(client)


def test_closing_cancels_streams(fake: FakeShaperouter) -> None:
    fake.script.insert(2, fake.hold)
    client = Client(fake.address)
    stream = client.stream("x")
    next(stream)
    client.close()
    with pytest.raises(CallCancelledError):
        next(stream)
    assert fake.cancelled.wait(10)


def test_closed_async_client_says_so(fake: FakeShaperouter) -> None:
    async def scenario() -> None:
        client = AsyncClient(fake.address)
        await client.models()
        await client.close()
        await client.close()
        with pytest.raises(RuntimeError, match="the client is closed"):
            await client.models()
        assert "closed" in repr(client)

    asyncio.run(scenario())
