"""Reaching the service: addresses, absence and closing."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from harness.waiting import TIMEOUT
from shaperouter import (
    AsyncClient,
    CallCancelledError,
    Client,
    InvalidArgumentError,
    UnavailableError,
)
from shaperouter._endpoint import channel_options
from shaperouter_service.rpc.heartbeat import MIN_PING_INTERVAL

if TYPE_CHECKING:
    from conftest import FakeShaperouter


def test_absent_service_fails_within_seconds_and_says_how_to_start_one(unused_address: str) -> None:
    start = time.monotonic()
    with Client(unused_address) as client, pytest.raises(UnavailableError) as caught:
        client.generate("x")
    assert time.monotonic() - start < 60
    message = str(caught.value)
    assert message.startswith(f"no Shaperouter at {unused_address}: ")
    assert "refused" in message
    assert "`shaperouterd serve`" in message
    assert caught.value.retriable
    assert caught.value.retry_after is None


@pytest.mark.usefixtures("fast_retries")
def test_absent_unix_socket_is_reported() -> None:
    with Client("unix:/nonexistent/socket") as client, pytest.raises(UnavailableError) as caught:
        client.models()
    assert "no Shaperouter at unix:/nonexistent/socket" in str(caught.value)
    assert "No such file" in str(caught.value)


def test_service_on_a_unix_socket_is_reached(fake: FakeShaperouter) -> None:
    with Client(fake.unix_address) as client:
        assert client.generate("x").text == " a library"


@pytest.mark.parametrize(
    "address",
    [
        *("", "localhost", "http://localhost:50051", "localhost:", ":50051", "::1:50051", "a b:1"),
        *("unix:", "dns:", 5),
    ],
)
@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_malformed_address_is_refused_at_once(
    kind: type[Client | AsyncClient], address: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=r"address: must be host:port or unix:path"):
        kind(address)


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_invalid_port_is_refused(kind: type[Client | AsyncClient]) -> None:
    with pytest.raises(InvalidArgumentError, match="the port must be at most 65535, got 'a:65536'"):
        kind("a:65536")


def test_address_that_grpc_cannot_parse_is_an_invalid_argument() -> None:
    with Client("ipv4:host:1") as client, pytest.raises(InvalidArgumentError) as caught:
        client.models()
    assert str(caught.value) == "address: gRPC cannot read 'ipv4:host:1'"


@pytest.mark.parametrize("prefix", ["", "dns:///"])
def test_unresolvable_host_is_reported(prefix: str) -> None:
    address = f"{prefix}nowhere.invalid:50051"
    with Client(address, retries=0) as client, pytest.raises(UnavailableError) as caught:
        client.models()
    message = str(caught.value)
    assert message.startswith(f"the host of {address} cannot be resolved: ")
    assert "Check its spelling" in message
    assert "[field" not in message


@pytest.mark.parametrize(
    "address",
    ["host:1", "host:65535", "[::1]:50051", "unix:relative", "unix:///a/b", "dns:///host:5"],
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


def test_proxy_settings_do_not_affect_calls_to_this_machine(
    fake: FakeShaperouter, unused_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"http://{unused_address}")
    monkeypatch.delenv("no_proxy", raising=False)
    with Client(fake.address) as client:
        assert client.generate("x").text == " a library"


def test_connections_with_calls_are_pinged_as_often_as_the_service_permits() -> None:
    options = dict(channel_options("host:1"))
    assert options["grpc.keepalive_time_ms"] >= 2000 * MIN_PING_INTERVAL
    assert options["grpc.http2.max_pings_without_data"] == 0
    assert "grpc.keepalive_permit_without_calls" not in options


def test_closed_client_raises_runtime_error(fake: FakeShaperouter) -> None:
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
    assert fake.cancelled.wait(TIMEOUT)


def test_closed_async_client_raises_runtime_error(fake: FakeShaperouter) -> None:
    async def scenario() -> None:
        client = AsyncClient(fake.address)
        await client.models()
        await client.close()
        await client.close()
        with pytest.raises(RuntimeError, match="the client is closed"):
            await client.models()
        assert "closed" in repr(client)

    asyncio.run(scenario())
