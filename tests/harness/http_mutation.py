"""Mutated HTTP requests, and what a server answers to them."""

import asyncio
import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# Seconds to wait for an answer to a request that may be incomplete.
PATIENCE = 0.05
# Seconds to wait for the answer to a whole request.
WHOLE = 30.0
VALUES: list[Any] = [
    None, True, -1, 0, 2**31, 2**63, 1e308, -0.5, "", "x" * 300, "\ud800", [], {}, [None], [[]],
    [{}], {"a": {"b": []}}, [1, "a"], [[1], [2**40]], "tiny",
]  # fmt: skip
HEADERS = [
    b"content-length: 7", b"content-length: -1", b"content-length: 99999999", b"expect: 1",
    b"transfer-encoding: chunked", b"transfer-encoding: gzip", b"content-type: text/html",
    b"authorization: Bearer \xff", b"x-request-id: " + b"i" * 5000, b"traceparent: 00-x",
    b"connection: upgrade", b"host:", b"x-client-id: \x80", b": empty", b"a" * 70_000 + b": b",
    b"content-encoding: gzip", b"content-encoding: deflate", b"content-encoding: br",
]  # fmt: skip


def with_other_values(
    source: random.Random, body: Mapping[str, Any], names: Sequence[str]
) -> dict[str, Any]:
    """An object with a few other values of its fields, or of these."""
    body = dict(body)
    for _ in range(source.randrange(3)):
        _replace_value(body, source.choice([*body, *names]), source)
    return body


def _replace_value(body: Any, name: Any, source: random.Random) -> None:
    """Replaces a value, or one somewhere within it, without changing the value itself."""
    inner = body.get(name) if isinstance(body, dict) else body[name]
    if not isinstance(inner, dict | list) or not inner or source.random() < 0.4:
        body[name] = source.choice(VALUES)
        return
    body[name] = inner.copy()
    keys = list(inner) if isinstance(inner, dict) else range(len(inner))
    _replace_value(body[name], source.choice(keys), source)


def mutated(
    source: random.Random,
    path: str,
    body: Mapping[str, Any],
    *,
    tail: bytes = b"",
    headers: Sequence[bytes] = (b"content-type: application/json",),
) -> bytes:
    """A request with a few changes of its header or its bytes.

    Args:
        source: Where randomness comes from.
        path: Its path.
        body: Its JSON.
        tail: What follows the JSON.
        headers: Lines of its header.
    """
    return mutated_bytes(source, path, json.dumps(body).encode() + tail, headers=headers)


def request_of(path: str, content: bytes, *, headers: Sequence[bytes]) -> bytes:
    """A request with nothing wrong about its header."""
    lines = [b"POST " + path.encode() + b" HTTP/1.1", b"host: router", *headers]
    lines.append(b"content-length: %d" % len(content))
    return b"\r\n".join(lines) + b"\r\n\r\n" + content


def mutated_bytes(
    source: random.Random, path: str, content: bytes, *, headers: Sequence[bytes]
) -> bytes:
    """A request of any content with a few changes of its header or its bytes."""
    method = source.choice([b"POST"] * 8 + [b"GET", b"PUT", b"\x00"])
    lines = [method + b" " + path.encode() + b" HTTP/1.1", b"host: router", *headers]
    lines += [b"content-length: %d" % len(content)]
    for _ in range(source.choice([0, 0, 0, 1, 2])):
        lines.insert(source.randrange(1, len(lines) + 1), source.choice(HEADERS))
    whole = bytearray(b"\r\n".join(lines) + b"\r\n\r\n" + content)
    for _ in range(source.choice([0, 0, 0, 1, 4])):
        place = source.randrange(len(whole))
        whole[place : place + source.randrange(4)] = source.randbytes(source.randrange(4))
    return bytes(whole)


def chunked(source: random.Random, request: bytes) -> bytes:
    """A request whose body is sent in chunks, the size of one of which may be wrong."""
    head, _, body = request.partition(b"\r\n\r\n")
    lines = [line for line in head.split(b"\r\n") if not line.startswith(b"content-length")]
    parts = [b"\r\n".join([*lines, b"transfer-encoding: chunked"]), b"\r\n\r\n"]
    size = max(1, len(body) // 3)
    for start in range(0, len(body), size):
        part = body[start : start + size]
        told = len(part) + source.choice([0] * 12 + [-1, 1, 2**31, 2**70])
        parts += [b"%x\r\n" % told, part, b"\r\n"]
    return b"".join([*parts, b"0\r\n\r\n"])


async def status_of(
    path: Path, request: bytes, *, patience: float = PATIENCE, pauses: int = 0
) -> int:
    """The status of the answer to a request; 0 if it is closed, or waits for more of it.

    Args:
        path: The socket.
        request: The request.
        patience: Seconds to wait for the answer. A whole request gets one in any case.
        pauses: How often the sender pauses for 10 ms.
    """
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        size = len(request) // (pauses + 1) + 1
        for start in range(0, len(request), size):
            if start:
                await asyncio.sleep(0.01)
            writer.write(request[start : start + size])
        line = await asyncio.wait_for(reader.readline(), patience)
        return int(line.split()[1]) if line else 0
    except (TimeoutError, ConnectionError):
        return 0
    finally:
        writer.close()
