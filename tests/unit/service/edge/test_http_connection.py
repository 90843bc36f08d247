"""Connections of callers who send no requests, endless ones, or none that HTTP knows."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from shaperouter_service.edge.http import accepting, connection, server
from shaperouter_service.edge.http.connection import MAX_HEAD_BYTES, Connection
from shaperouter_service.edge.http.server import bound, serving
from shaperouter_service.errors import StartupError
from shaperouter_service.telemetry.http_calls import HttpMetrics

REQUEST = b"GET / HTTP/1.1\r\nhost: test\r\n\r\n"
# Bytes that no socket buffers.
LARGE = 16_000_000
# Seconds; longer than any of these tests, and shorter than the time that idle connections may stay.
TIMEOUT = 60


async def app(scope: Any, receive: Callable[..., Any], send: Callable[..., Any]) -> None:
    """Reads a request and answers with the length of its body.

    Below /refused it reads nothing, and below /large it answers with several megabytes.
    """
    length = 0
    while scope["path"] != "/refused":
        message = await receive()
        length += len(message.get("body", b""))
        if not message.get("more_body"):
            break
    body = bytes(LARGE) if scope["path"] == "/large" else str(length).encode()
    await send(
        {
            "type": "http.response.start",
            "status": 200,
            "headers": [(b"content-length", str(len(body)).encode())],
        }
    )
    await send({"type": "http.response.body", "body": body})


Caller = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture
def called(tmp_path: Path) -> Callable[..., None]:
    """Serves, and lets callers talk to the server, one after the other."""
    address = f"unix:{tmp_path / 'http'}"

    async def scenario(callers: list[Caller], max_connections: int) -> None:
        metrics = HttpMetrics(CollectorRegistry())
        with bound(address) as listener:
            async with serving(
                app, listener, tls=None, metrics=metrics, max_connections=max_connections
            ):
                for caller in callers:
                    reader, writer = await asyncio.open_unix_connection(tmp_path / "http")
                    async with asyncio.timeout(TIMEOUT):
                        await caller(reader, writer)
                    writer.close()

    def run(*callers: Caller, max_connections: int = 100) -> None:
        asyncio.run(scenario(list(callers), max_connections))

    return run


async def answered(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """The status line and the body of an answer."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
    return head.partition(b"\r\n")[0], await reader.readexactly(length)


async def closed(reader: asyncio.StreamReader) -> bool:
    """Waits for the end, without an answer."""
    return await reader.read() == b""


@pytest.mark.parametrize(
    "sent",
    [b"GET / HTTP/1.1\r\nx: ", b"GET /", b"GET / HTTP/1.1\r\n"],
    ids=["a header", "a path", "headers"],
)
def test_an_endless_head_is_refused(called: Callable[..., None], sent: bytes) -> None:
    piece = b"x: y\r\n" * 1000 if sent.endswith(b"\n") else b"a" * 6000

    async def caller(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(sent)
        for _ in range(MAX_HEAD_BYTES // len(piece) + 1):
            writer.write(piece)
            await writer.drain()
            # So that it arrives in pieces, as over a network.
            await asyncio.sleep(0)
        status, body = await answered(reader)
        assert status == b"HTTP/1.1 431 Request Header Fields Too Large"
        assert str(MAX_HEAD_BYTES).encode() in body
        assert await closed(reader)

    called(caller)


def test_endless_trailers_end_the_connection(called: Callable[..., None]) -> None:
    async def caller(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def send_trailers() -> None:
            while True:
                writer.write(b"x: y\r\n" * 1000)
                await writer.drain()
                await asyncio.sleep(0)

        writer.write(b"POST / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n0\r\n")
        with pytest.raises(ConnectionError):
            await send_trailers()

    called(caller)


@pytest.mark.parametrize("encoding", ["content-length: 3000000", "transfer-encoding: chunked"])
def test_a_body_may_be_larger_than_a_head(called: Callable[..., None], encoding: str) -> None:
    async def caller(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            writer.write(f"POST / HTTP/1.1\r\nhost: test\r\n{encoding}\r\n\r\n".encode())
            if encoding.startswith("content"):
                writer.write(b"a" * 3_000_000)
            else:
                for _ in range(3):
                    writer.write(b"f4240\r\n" + b"a" * 1_000_000 + b"\r\n")
                writer.write(b"0\r\n\r\n")
            assert await answered(reader) == (b"HTTP/1.1 200 OK", b"3000000")

    called(caller)


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET / HT", REQUEST + b"GET / HT", REQUEST + b"\r\n"],
    ids=["nothing", "half a head", "half of a second head", "nothing after an answer"],
)
def test_a_connection_that_completes_no_request_is_closed(
    called: Callable[..., None], monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(connection, "HEAD_SECONDS", 1.0)

    async def caller(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if sent.startswith(REQUEST):
            writer.write(REQUEST)
            await answered(reader)
        writer.write(sent.removeprefix(REQUEST))
        assert await closed(reader)

    called(caller)


def test_a_request_may_take_longer_than_its_head(
    called: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "HEAD_SECONDS", 1.0)

    async def caller(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 1\r\n\r\n")
        # Time is what is tested: longer than the limit.
        await asyncio.sleep(1.5)
        writer.write(b"a")
        assert await answered(reader) == (b"HTTP/1.1 200 OK", b"1")

    called(caller)


def test_the_body_of_a_refused_request_is_read_to_its_end(
    called: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A caller that still sends would else see a broken connection instead of the refusal."""
    monkeypatch.setattr(connection, "HEAD_SECONDS", 1.0)

    async def caller(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"POST /refused HTTP/1.1\r\nhost: test\r\ncontent-length: 2\r\n\r\n")
        assert await answered(reader) == (b"HTTP/1.1 200 OK", b"0")
        writer.write(b"a")
        # Time is what is tested: longer than the limit of a head.
        await asyncio.sleep(1.5)
        writer.write(b"a" + REQUEST)
        assert await answered(reader) == (b"HTTP/1.1 200 OK", b"0")

    called(caller)


@pytest.mark.parametrize("rest", [b"a", b"aa"], ids=["a part", "all"])
def test_a_caller_that_sends_no_more_than_a_refused_body_is_let_go(
    called: Callable[..., None], monkeypatch: pytest.MonkeyPatch, rest: bytes
) -> None:
    monkeypatch.setattr(server, "_KEEP_ALIVE", 1)

    async def caller(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"POST /refused HTTP/1.1\r\nhost: test\r\ncontent-length: 2\r\n\r\n")
        await answered(reader)
        writer.write(rest)
        assert await closed(reader)

    called(caller)


def test_a_caller_that_keeps_sending_a_refused_body_is_cut_off(
    called: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_KEEP_ALIVE", 1)

    async def caller(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"POST /refused HTTP/1.1\r\nhost: test\r\ncontent-length: 99999999\r\n\r\n")
        await answered(reader)
        ends = asyncio.ensure_future(closed(reader))
        while not ends.done():
            writer.write(b"a")
            # More often than the limit.
            await asyncio.wait({ends}, timeout=0.1)
        assert await ends

    called(caller)


OFFER = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAEAAEAA\r\n"


@pytest.mark.parametrize(
    "body",
    [
        b"content-length: 3\r\n\r\nabc",
        b"transfer-encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
    ],
    ids=["announced", "chunked"],
)
@pytest.mark.parametrize("together", [True, False])
def test_a_request_that_offers_another_protocol_is_answered_in_this_one(
    called: Callable[..., None], body: bytes, together: bool
) -> None:
    async def caller(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sent = b"POST / HTTP/1.1\r\nhost: test\r\n" + OFFER + body
        if together:
            writer.write(sent + REQUEST)
        else:
            for byte in sent + REQUEST:
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0)
        assert await answered(reader) == (b"HTTP/1.1 200 OK", b"3")
        assert await answered(reader) == (b"HTTP/1.1 200 OK", b"0")
        writer.write(REQUEST.replace(b"\r\n\r\n", b"\r\n" + OFFER + b"\r\n") + REQUEST)
        assert await answered(reader) == (b"HTTP/1.1 200 OK", b"0")
        assert await answered(reader) == (b"HTTP/1.1 200 OK", b"0")

    called(caller)


def test_an_address_on_which_another_socket_listens_is_refused() -> None:
    async def scenario() -> None:
        with bound("127.0.0.1:0") as listener, socket.socket() as other:
            # Both may be bound until one listens.
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind(listener.getsockname())
            other.listen()
            metrics = HttpMetrics(CollectorRegistry())
            with pytest.raises(StartupError, match=r"http-listen: cannot listen on port \d+: "):
                async with serving(app, listener, tls=None, metrics=metrics, max_connections=9):
                    pass

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "sent",
    [b"\x16\x03\x01\r\n\r\n", REQUEST.replace(b"\r\n\r\n", b"\r\nupgrade: websocket\r\n\r\n")],
    ids=["not HTTP", "an upgrade"],
)
def test_callers_cannot_write_to_the_log(
    called: Callable[..., None], caplog: pytest.LogCaptureFixture, sent: bytes
) -> None:
    async def caller(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(sent.replace(b"host", b"connection: upgrade\r\nhost"))
        await answered(reader)

    with caplog.at_level(logging.WARNING):
        called(caller)
    assert caplog.records == []


def test_connections_above_the_limit_wait(
    called: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accepting, "PAUSE", 0.01)

    async def caller(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = writer.get_extra_info("peername")
        writer.write(REQUEST)
        assert (await answered(reader))[0] == b"HTTP/1.1 200 OK"
        second, late = await asyncio.open_unix_connection(path)
        late.write(REQUEST)
        answer = asyncio.create_task(answered(second))
        # The first one is served still, and the second one is not.
        writer.write(REQUEST)
        assert (await answered(reader))[0] == b"HTTP/1.1 200 OK"
        assert not answer.done()
        writer.close()
        assert (await answer)[0] == b"HTTP/1.1 200 OK"
        late.close()

    called(caller, max_connections=1)


def test_an_answer_that_nobody_reads_ends_the_connection(
    called: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "READ_SECONDS", 0.05)
    lost = asyncio.Event()

    class Watched(Connection):
        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            lost.set()

    monkeypatch.setattr(server, "Connection", Watched)

    async def caller(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()
        writer.write(b"GET /large HTTP/1.1\r\nhost: test\r\n\r\n")
        await lost.wait()

    called(caller)


@pytest.mark.parametrize(("age", "closes"), [(0.0, True), (1000.0, False)])
def test_an_old_connection_ends_after_an_answer_that_says_so(
    called: Callable[..., None], monkeypatch: pytest.MonkeyPatch, age: float, *, closes: bool
) -> None:
    monkeypatch.setattr(connection, "CONNECTION_AGE", age)

    async def caller(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(REQUEST)
        head = await reader.readuntil(b"\r\n\r\n")
        assert (b"connection: close" in head.lower()) is closes
        await reader.readexactly(1)
        if closes:
            assert await closed(reader)
        else:
            writer.write(REQUEST)
            await answered(reader)

    called(caller)
