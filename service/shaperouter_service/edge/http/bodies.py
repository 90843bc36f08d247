"""Bodies of requests: JSON objects, read within limits of size and time."""

import asyncio
from http import HTTPStatus
from typing import Any

from starlette.requests import Request

from shaperouter_service.edge.http.errors import HttpError
from shaperouter_service.errors import shortened
from shaperouter_service.system.strict_json import parse

# Seconds that a caller may take to send a body.
BODY_SECONDS = 60.0
# Bodies above this size are parsed in a thread, so that other calls continue meanwhile.
_AT_ONCE = 2**16


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
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        shown = shortened(repr(kind), 64)
        raise HttpError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            "unsupported_media_type",
            f"content-type must be application/json, got {shown}",
        )
    body = await _read(request, limit)
    if len(body) <= _AT_ONCE:
        return _parsed(body)
    return await asyncio.to_thread(_parsed, body)


async def _read(request: Request, limit: int) -> bytes:
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise _too_large(limit)
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
        raise HttpError(
            HTTPStatus.REQUEST_TIMEOUT,
            "request_timeout",
            f"the body must arrive within {BODY_SECONDS:g} s, got {size} bytes of it",
        ) from error
    return b"".join(parts)


def _too_large(limit: int) -> HttpError:
    return HttpError(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        "request_too_large",
        f"the body must have at most {limit} bytes",
    )


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        value = parse(body.decode())
    except ValueError as error:
        raise _invalid(f"the body must be JSON: {shortened(str(error), 200)}") from error
    if not isinstance(value, dict):
        raise _invalid(f"the body must be a JSON object, got {shortened(repr(value), 64)}")
    return value


def _invalid(message: str) -> HttpError:
    return HttpError(HTTPStatus.BAD_REQUEST, "invalid_json", message)
