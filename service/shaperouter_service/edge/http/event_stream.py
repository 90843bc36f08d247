"""Streams of server-sent events."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from sse_starlette import EventSourceResponse

from shaperouter_service.edge.http.errors import ErrorBody, error_body
from shaperouter_service.errors import ServiceError

# Seconds without an event after which a stream sends a comment, so that proxies keep it open. As
# long, a stream waits for its first piece before it begins.
PING = 10

_ENCODE = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

# Bodies of events; None for something that happened and has no event.
Pieces: TypeAlias = AsyncGenerator[dict[str, Any] | None, None]


class EventStream(EventSourceResponse):
    """A stream of server-sent events.

    Attributes:
        error_event: Makes the last event of a stream that the service ends.
    """

    def __init__(
        self, events: AsyncIterator[bytes], error_event: Callable[[ServiceError], bytes]
    ) -> None:
        """Takes the events, and what makes the last one after an error."""
        super().__init__(events, sep="\n", ping=PING, headers={"x-accel-buffering": "no"})
        self.error_event = error_event


async def event_stream(
    pieces: Pieces,
    *,
    error_body: ErrorBody = error_body,
    last: str | None = "[DONE]",
    are_typed: bool = False,
) -> EventStream:
    """Waits a while for the first piece, so that an error has a status, and streams the rest.

    A request may wait longer, for a slot or for its model to be loaded. Its stream then begins with
    comments.

    Args:
        pieces: The bodies of the events. Closed at the end, and if the caller leaves.
        error_body: Makes the body of an error that ends the stream.
        last: The event after the last piece; None for none.
        are_typed: Whether each body has its type, which names its event.

    Raises:
        ServiceError: The request failed meanwhile.
    """
    first = asyncio.ensure_future(anext(pieces))
    try:
        await asyncio.wait([first], timeout=PING)
        if first.done():
            first.result()
    except BaseException:
        first.cancel()
        await asyncio.wait([first])
        await pieces.aclose()
        raise

    def event(piece: Mapping[str, Any]) -> bytes:
        name = f"event: {piece['type']}\n" if are_typed else ""
        return f"{name}data: {_ENCODE(piece)}\n\n".encode()

    def error_event(error: ServiceError) -> bytes:
        return event(error_body(error))

    return EventStream(_events_of(first, pieces, event, error_event, last), error_event)


async def _events_of(
    first: Awaitable[dict[str, Any] | None],
    pieces: Pieces,
    event: Callable[[Mapping[str, Any]], bytes],
    error_event: Callable[[ServiceError], bytes],
    last: str | None,
) -> AsyncIterator[bytes]:
    """The pieces as events, and the error if they end with one."""
    async with contextlib.aclosing(pieces):
        try:
            if (piece := await first) is not None:
                yield event(piece)
            async for piece in pieces:
                if piece is not None:
                    yield event(piece)
        except ServiceError as error:
            yield error_event(error)
            return
    if last is not None:
        yield f"data: {last}\n\n".encode()
