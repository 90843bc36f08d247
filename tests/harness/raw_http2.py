"""HTTP/2 by hand, for what gRPC cannot be made to do.

Calls over a connection without reads, and a server that stops just before it begins a call.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import socketserver
import struct
import threading
from collections.abc import AsyncIterator, Iterator
from typing import IO

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _SETTINGS, _PING, _GOAWAY = 0x0, 0x1, 0x4, 0x6, 0x7
_END_STREAM, _END_HEADERS, _ACK = 0x1, 0x4, 0x1
_INITIAL_WINDOW_SIZE = 0x4


class DeafConnection:
    """A connection that answers pings, but whose flow control lets the server send no message.

    When `vanished` is set, it answers nothing any more, though it is not closed.
    """

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.vanished = False
        self._writer = writer
        self._stream = 1

    def call(self, path: str, message: bytes = b"", **metadata: str) -> None:
        """Starts a call whose responses cannot be sent.

        Metadata goes out in Latin-1; its names have underscores here, and dashes there.
        """
        fields = {
            ":method": "POST",
            ":scheme": "http",
            ":path": path,
            ":authority": "localhost",
            "te": "trailers",
            "content-type": "application/grpc",
            **{name.replace("_", "-"): value for name, value in metadata.items()},
        }
        block = b"".join(_field(name, value) for name, value in fields.items())
        body = struct.pack(">BI", 0, len(message)) + message
        self._writer.write(_frame(_HEADERS, _END_HEADERS, self._stream, block))
        self._writer.write(_frame(_DATA, _END_STREAM, self._stream, body))
        self._stream += 2

    async def answer_pings(self, reader: asyncio.StreamReader) -> None:
        """Reads what the server sends, until the connection ends."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readexactly(9)
                payload = await reader.readexactly(int.from_bytes(head[:3]))
                kind, flags = head[3:5]
                if kind == _PING and not flags & _ACK and not self.vanished:
                    self._writer.write(_frame(_PING, _ACK, 0, payload))


@contextlib.asynccontextmanager
async def deaf_connection(address: str) -> AsyncIterator[DeafConnection]:
    """Connects to `unix:PATH`, and closes the connection at the end of the context."""
    reader, writer = await asyncio.open_unix_connection(address.removeprefix("unix:"))
    writer.write(_PREFACE)
    writer.write(_frame(_SETTINGS, 0, 0, struct.pack(">HI", _INITIAL_WINDOW_SIZE, 0)))
    connection = DeafConnection(writer)
    answering = asyncio.create_task(connection.answer_pings(reader))
    try:
        yield connection
    finally:
        writer.close()
        await answering
        with contextlib.suppress(OSError):
            await writer.wait_closed()


@contextlib.contextmanager
def stopping_server() -> Iterator[str]:
    """A server that stops before it begins its first call; gives its address.

    It resets all later connections.
    """
    stopped = threading.Lock()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            if not stopped.acquire(blocking=False):
                reset = struct.pack("ii", 1, 0)
                self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
                return
            self.rfile.read(len(_PREFACE))
            self.wfile.write(_frame(_SETTINGS, 0, 0, b""))
            _read_call(self.rfile)
            self.wfile.write(_frame(_GOAWAY, 0, 0, struct.pack(">II", 0, 0)))

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


def _read_call(source: IO[bytes]) -> None:
    """Reads frames until a call has been received, or the connection ends."""
    while head := source.read(9):
        source.read(int.from_bytes(head[:3]))
        if head[3] == _DATA and head[4] & _END_STREAM:
            return


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _field(name: str, value: str) -> bytes:
    """A header without indexing or Huffman coding; both parts have fewer than 127 bytes."""
    return b"\0" + b"".join(bytes([len(part)]) + part.encode("latin-1") for part in (name, value))
