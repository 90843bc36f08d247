"""Server-sent events of generations."""

import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from typing import Any, TypeAlias

from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.responses import Response

from shaperouter_service.errors import ServiceError

# Seconds without an event after which a stream sends a comment, so that proxies keep it open.
PING = 10
# Seconds that a caller may take to read a piece of a stream.
READ_SECONDS = 60.0

# Events to send; None where there is none yet.
Pieces: TypeAlias = AsyncGenerator[ServerSentEvent | None, None]


def json_event(body: Mapping[str, Any], name: str | None = None) -> ServerSentEvent:
    """An event with a JSON object."""
    return ServerSentEvent(json.dumps(body, ensure_ascii=False, separators=(",", ":")), event=name)


async def streamed(pieces: Pieces, failed: Callable[[ServiceError], ServerSentEvent]) -> Response:
    """Waits for the first piece, so that an error has a status, and streams the rest.

    Args:
        pieces: The events.
        failed: The last event, if they end with an error.
    """
    try:
        first = await anext(pieces)
    except BaseException:
        await pieces.aclose()
        raise
    return EventSourceResponse(
        _events(first, pieces, failed),
        sep="\n",
        ping=PING,
        send_timeout=READ_SECONDS,
        headers={"x-accel-buffering": "no"},
    )


async def _events(
    first: ServerSentEvent | None, pieces: Pieces, failed: Callable[[ServiceError], ServerSentEvent]
) -> AsyncIterator[ServerSentEvent]:
    async with contextlib.aclosing(pieces):
        try:
            if first is not None:
                yield first
            async for piece in pieces:
                if piece is not None:
                    yield piece
        except ServiceError as error:
            yield failed(error)
