"""Streams of server-sent events."""

import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any, TypeAlias

from sse_starlette import EventSourceResponse

from shaperouter_service.edge.http.errors import ErrorBody, error_body
from shaperouter_service.errors import ServiceError

# Seconds without an event after which a stream sends a comment, so that proxies keep it open.
PING = 10
# Seconds that a caller may take to read a piece of a stream.
READ_SECONDS = 60.0

_ENCODE = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

# Bodies of events; None for something that happened and has no event.
Pieces: TypeAlias = AsyncGenerator[dict[str, Any] | None, None]


async def event_stream(
    pieces: Pieces,
    *,
    error_body: ErrorBody = error_body,
    last: str | None = "[DONE]",
    are_typed: bool = False,
) -> EventSourceResponse:
    """Waits for the first piece, so that an error has a status, and streams the rest.

    Args:
        pieces: The bodies of the events. Closed at the end, and if the caller leaves.
        error_body: Makes the body of an error that ends the stream.
        last: The event after the last piece; None for none.
        are_typed: Whether each body has its type, which names its event.

    Raises:
        ServiceError: The request failed before its first piece.
    """
    try:
        first = await anext(pieces)
    except BaseException:
        await pieces.aclose()
        raise
    return EventSourceResponse(
        _events_of(first, pieces, error_body, last, are_typed=are_typed),
        sep="\n",
        ping=PING,
        send_timeout=READ_SECONDS,
        headers={"x-accel-buffering": "no"},
    )


async def _events_of(
    first: dict[str, Any] | None,
    pieces: Pieces,
    error_body: ErrorBody,
    last: str | None,
    *,
    are_typed: bool,
) -> AsyncIterator[bytes]:
    """The pieces as events, and the error if they end with one."""

    def event(piece: Mapping[str, Any]) -> bytes:
        name = f"event: {piece['type']}\n" if are_typed else ""
        return f"{name}data: {_ENCODE(piece)}\n\n".encode()

    async with contextlib.aclosing(pieces):
        try:
            if first is not None:
                yield event(first)
            async for piece in pieces:
                if piece is not None:
                    yield event(piece)
        except ServiceError as error:
            yield event(error_body(error))
            return
    if last is not None:
        yield f"data: {last}\n\n".encode()
