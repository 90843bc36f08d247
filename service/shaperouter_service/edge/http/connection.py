"""A connection of a caller, with limits on its age, on heads of requests, and on unread answers."""

import asyncio
import logging
import random
from http import HTTPStatus
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from shaperouter_service.rpc.server import CONNECTION_AGE

# Maximum bytes of a request's line and headers, and of everything else outside bodies.
MAX_HEAD_BYTES = 64 * 1024
# Seconds from a request's first byte, or from the connection's start, until its headers end.
HEAD_SECONDS = 20.0

# Part by which the age of connections varies, as gRPC varies it.
AGE_JITTER = 0.1

# Seconds in which a caller must read something of an answer that it has not read whole.
READ_SECONDS = 60.0

# Beginning of uvicorn's warning that anybody can cause, as often as they like.
_CAUSED_BY_CALLERS = "Invalid HTTP request"

# Headers that say where a body ends.
_FRAMING = (b"content-length", b"transfer-encoding")


class _Parser:
    """uvicorn's parser, changed to read requests that offer another protocol like any others.

    Java's client offers HTTP/2 with each request until it has an answer. The parser takes all that
    follows such a request's headers for that protocol, so it would lose the body.
    """

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection
        self._parser = httptools.HttpRequestParser(connection)

    @property
    def offers_upgrade(self) -> bool:
        """Whether the present request offers another protocol."""
        return bool(self._parser.should_upgrade())

    def should_upgrade(self) -> bool:
        return False

    def should_keep_alive(self) -> bool:
        return bool(self._parser.should_keep_alive())

    def get_method(self) -> bytes:
        return bytes(self._parser.get_method())

    def get_http_version(self) -> str:
        return str(self._parser.get_http_version())

    def feed_data(self, data: bytes) -> None:
        while True:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as end:
                data = data[end.args[0] :]
                self._parser = httptools.HttpRequestParser(self._connection)
                self._connection.read_body_with(self._parser)
            else:
                return


class Connection(HttpToolsProtocol):
    """uvicorn's connection, which has no such limits of its own.

    Its parser keeps a header until it ends, and copies what it has for each further piece. So an
    endless header would stop the event loop, and then take all memory.
    """

    def __init__(self, **settings: Any) -> None:
        """Takes the arguments of uvicorn's."""
        super().__init__(**settings)
        # Bytes since the parser last delivered the end of headers or a part of a body.
        self._undelivered = 0
        self._in_body = False
        # When the caller is asked to use a new connection, on the loop's clock. The time varies, so
        # that callers who came together do not come back together. It is no secret, so the rule
        # against ordinary random numbers does not apply.
        share = random.uniform(1 - AGE_JITTER, 1 + AGE_JITTER)  # noqa: S311
        self._ends_at = self.loop.time() + share * CONNECTION_AGE
        # When the rest of a body that nobody reads must have arrived.
        self._discards_until: float | None = None
        self._head_timer: asyncio.TimerHandle | None = None
        self._read_timer: asyncio.TimerHandle | None = None
        self._reader = _Parser(self)
        # uvicorn declares httptools' class, but calls only the methods that `_Parser` has. That one
        # does not inherit from the class, because it must replace its parser for some bodies.
        self.parser = self._reader  # type: ignore[assignment]
        # Whether a new parser is being fed the length of a body, whose headers are already known.
        self._repeats_head = False
        self.logger.addFilter(_callers_cannot_cause)

    # The names of methods are asyncio's and httptools'. Like uvicorn's own, this one takes only
    # transports that it can write to.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begins to wait for a request."""
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends."""
        self._end_wait()
        self._end_reading()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Begins to wait for the caller to read."""
        super().pause_writing()
        self._await_reading()

    def resume_writing(self) -> None:
        """Continues: the caller has read nearly all."""
        self._end_reading()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        """Parses what has arrived."""
        self._undelivered += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._undelivered > MAX_HEAD_BYTES:
            self._refuse_head()
        elif self._answers:
            return
        elif self._undelivered and not self._in_body:
            self._await_head()
        else:
            # uvicorn stops waiting at the first byte. The rest of a body whose request was refused
            # has as much time as an idle connection, however its bytes are spread.
            if not self._in_body or self._discards_until is None:
                self._discards_until = self.loop.time() + self.timeout_keep_alive
            self.timeout_keep_alive_task = self.loop.call_at(
                self._discards_until, self.timeout_keep_alive_handler
            )

    def read_body_with(self, parser: "httptools.HttpRequestParser") -> None:
        """Lets a new parser read the body of the present request, if it has one."""
        if framing := self._framing:
            head = b"".join(name + b": " + value + b"\r\n" for name, value in framing)
            self._repeats_head = True
            parser.feed_data(b"POST / HTTP/1.1\r\n" + head + b"\r\n")
            self._repeats_head = False

    @property
    def _framing(self) -> list[tuple[bytes, bytes]]:
        return [each for each in self.headers if each[0] in _FRAMING]

    def on_message_begin(self) -> None:
        """Begins to read a request."""
        if not self._repeats_head:
            super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Takes a part of its address."""
        if not self._repeats_head:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Takes a header."""
        if not self._repeats_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begins a request."""
        self._undelivered = 0
        if self._repeats_head:
            return
        self._in_body = True
        self._discards_until = None
        self._end_wait()
        super().on_headers_complete()
        if self.cycle is not None and self.loop.time() >= self._ends_at:
            # The answer says so, and the connection ends after it.
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        """Takes a part of a body."""
        self._undelivered = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Ends a request's body."""
        self._undelivered = 0
        if self._reader.offers_upgrade and self._framing:
            # Only its headers; see `_Parser`.
            return
        self._in_body = False
        super().on_message_complete()

    @property
    def _answers(self) -> bool:
        """Whether a request has begun and is not answered yet."""
        return self.cycle is not None and not self.cycle.response_complete

    def _await_head(self) -> None:
        """Begins to wait for the end of a head, unless it waits for one."""
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _end_wait(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _await_reading(self) -> None:
        unread = self.transport.get_write_buffer_size()
        self._read_timer = self.loop.call_later(READ_SECONDS, self._check_reading, unread)

    def _check_reading(self, unread: int) -> None:
        """Ends the connection if nothing was read since there were `unread` bytes."""
        if self.transport.get_write_buffer_size() < unread:
            self._await_reading()
        else:
            # Closing would wait until all is read.
            self.transport.abort()

    def _end_reading(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None

    def _refuse_head(self) -> None:
        # An answer in progress would be mixed with this one.
        if not self._answers:
            status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            message = f"The line and the headers must have at most {MAX_HEAD_BYTES} bytes.\n"
            self.transport.write(
                f"HTTP/1.1 {status} {status.phrase}\r\nconnection: close\r\n"
                "content-type: text/plain; charset=utf-8\r\n"
                f"content-length: {len(message)}\r\n\r\n{message}".encode()
            )
        self.transport.close()


def _callers_cannot_cause(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith(_CAUSED_BY_CALLERS)
