"""Bodies of requests, and JSON objects in them, read within limits of size and time."""

import asyncio
import time
import zlib
from collections.abc import AsyncGenerator
from http import HTTPStatus
from typing import Any

from starlette.requests import Request

from shaperouter_service.edge.http.errors import HttpError
from shaperouter_service.edge.offloading import translated
from shaperouter_service.errors import shortened
from shaperouter_service.system.strict_json import parse

# Seconds that a caller may take to send a body, or the next part of a long one.
BODY_SECONDS = 60.0
# Bytes of that part. The slowest speech codecs produce more than twice as much in this time.
PART_BYTES = 2**15
# Bytes of a long body to read before other calls get a turn.
_PIECE = 2**14
# Compressions of bodies, with zlib's number of each.
_COMPRESSED = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}


async def read_json(request: Request, *, limit: int) -> dict[str, Any]:
    """Reads a JSON object.

    Args:
        request: The request.
        limit: Maximum bytes of its body.

    Raises:
        HttpError: It is of another type, too large, too slow, or no JSON object.
        ClientDisconnect: The caller has gone.
    """
    # Web pages of other sites may send other types without asking the browser's user.
    check_type(request, "application/json")
    body = await read_body(request, limit=limit)
    return await translated(len(body), json_object, body)


async def read_body(request: Request, *, limit: int) -> bytes:
    """Reads a body of any type, which may be compressed.

    Args:
        request: The request.
        limit: Maximum bytes of its body, before and after it is decompressed.

    Raises:
        HttpError: It is too large, too slow, or compressed in a way that is not known.
        ClientDisconnect: The caller has gone.
    """
    encoding = _encoding(request, *_COMPRESSED)
    body = await _read(request, limit)
    if encoding in _COMPRESSED:
        # In a thread, since a small body may become a large one.
        body = await asyncio.to_thread(_decompressed, body, encoding, limit)
    return body


def refuse_compressed(request: Request) -> None:
    """Refuses bodies that are compressed.

    Raises:
        HttpError: The body is.
    """
    _encoding(request)


def _encoding(request: Request, *compressed: str) -> str:
    """The encoding of a body: identity, or one of those given."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    known = ("identity", *compressed)
    if encoding not in known:
        rule = f"must be one of {', '.join(known)}" if compressed else "of a form must be identity"
        raise HttpError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            "unsupported_content_encoding",
            f"content-encoding {rule}, got {shortened(encoding, 64)!r}",
        )
    return encoding


def _decompressed(body: bytes, encoding: str, limit: int) -> bytes:
    decompressor = zlib.decompressobj(_COMPRESSED[encoding])
    try:
        # One byte more than allowed tells that it is too large.
        whole = decompressor.decompress(body, limit + 1)
    except zlib.error as error:
        raise _invalid_encoding(encoding, str(error)) from error
    if len(whole) > limit:
        raise _too_large(limit)
    if not decompressor.eof:
        raise _invalid_encoding(encoding, "it is cut short")
    if decompressor.unused_data:
        size = len(decompressor.unused_data)
        raise _invalid_encoding(encoding, f"it has {size} bytes after its end")
    return whole


def _invalid_encoding(encoding: str, why: str) -> HttpError:
    return HttpError(
        HTTPStatus.BAD_REQUEST, "invalid_encoding", f"the body must be {encoding}: {why}"
    )


async def read_pieces(request: Request, *, limit: int) -> AsyncGenerator[bytes, None]:
    """Yields a long body as it arrives. Only the time for which it is awaited counts.

    Args:
        request: The request.
        limit: Maximum bytes of its body.

    Raises:
        HttpError: It is too large or too slow.
        ClientDisconnect: The caller has gone.
    """
    _check_declared(request, limit)
    parts = request.stream()
    size, part_size, seconds = 0, 0, BODY_SECONDS
    while True:
        since = time.monotonic()
        try:
            async with asyncio.timeout(seconds):
                part = await anext(parts, None)
        except TimeoutError as error:
            got = f"{PART_BYTES} bytes of a body must arrive within {BODY_SECONDS:g} s"
            raise _too_slow(f"{got}, got {part_size} of them") from error
        if part is None:
            return
        seconds -= time.monotonic() - since
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        part_size += len(part)
        if part_size >= PART_BYTES:
            part_size, seconds = 0, BODY_SECONDS
        for start in range(0, len(part), _PIECE):
            yield part[start : start + _PIECE]
            await asyncio.sleep(0)


def check_type(request: Request, expected: str) -> None:
    """Refuses bodies of another type.

    Raises:
        HttpError: The type is another one.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != expected:
        shown = shortened(repr(kind), 64)
        raise HttpError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            "unsupported_media_type",
            f"content-type must be {expected}, got {shown}",
        )


async def _read(request: Request, limit: int) -> bytes:
    _check_declared(request, limit)
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > limit:
                    raise _too_large(limit)
                parts.append(part)
    except TimeoutError as error:
        rule = f"the body must arrive within {BODY_SECONDS:g} s"
        raise _too_slow(f"{rule}, got {size} bytes of it") from error
    return b"".join(parts)


def _check_declared(request: Request, limit: int) -> None:
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise _too_large(limit)


def _too_slow(message: str) -> HttpError:
    return HttpError(HTTPStatus.REQUEST_TIMEOUT, "request_timeout", message)


def _too_large(limit: int) -> HttpError:
    return HttpError(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        "request_too_large",
        f"the body must have at most {limit} bytes",
    )


def json_object(body: bytes) -> dict[str, Any]:
    """Parses a JSON object.

    Raises:
        HttpError: It is none.
    """
    try:
        value = parse(body.decode())
    except ValueError as error:
        raise _invalid(f"the body must be JSON: {shortened(str(error), 200)}") from error
    if not isinstance(value, dict):
        raise _invalid(f"the body must be a JSON object, got {shortened(repr(value), 64)}")
    return value


def _invalid(message: str) -> HttpError:
    return HttpError(HTTPStatus.BAD_REQUEST, "invalid_json", message)
