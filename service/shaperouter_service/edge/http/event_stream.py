"""Streams of server-sent events."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeAlias

from sse_starlette import EventSourceResponse
from starlette.types import Receive, Scope, Send

from shaperouter_service.edge.http.errors import error_body
from shaperouter_service.errors import ServiceError

# Seconds without an event after which a stream sends a comment, so that proxies keep it open. A
# stream also waits this long for its first piece before it begins.
PING = 10

_ENCODE = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

# Bodies of events; None for something that happened and has no event.
Pieces: TypeAlias = AsyncGenerator[dict[str, Any] | None, None]


class EventStream(EventSourceResponse):
    """A stream of server-sent events.

    Attributes:
        error_events: Makes the last events of a stream that the service ends.
    """

    def __init__(
        self,
        events: AsyncIterator[bytes],
        error_events: Callable[[ServiceError], bytes],
        close: Callable[[], Awaitable[None]],
    ) -> None:
        """Takes the events, what makes the last ones after an error, and what closes their source.

        The events close it, too, unless nobody has begun to read them.
        """
        super().__init__(events, sep="\n", ping=PING, headers={"x-accel-buffering": "no"})
        # Whether the connection stays open is the server's decision, which adds its own header.
        del self.headers["connection"]
        self.error_events = error_events
        self._close = close
        self._held: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
        self._receive: Receive | None = None

    def hold(self, held: contextlib.AbstractContextManager[object], receive: Receive) -> None:
        """Takes over what the source of the events needs, until the stream has ended.

        Args:
            held: Resources.
            receive: Says when the caller has left, instead of the server's own: the body of the
                request was read through it.
        """
        self._held, self._receive = held, receive

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the events."""
        with self._held:
            try:
                await super().__call__(scope, self._receive or receive, send)
            finally:
                await self._close()


async def event_stream(
    pieces: Pieces,
    *,
    failed: Callable[[ServiceError], Iterable[dict[str, Any]]] = lambda error: [error_body(error)],
    last: str | None = "[DONE]",
    are_typed: bool = False,
) -> EventStream:
    """Waits a while for the first piece, so that an error has a status, and streams the rest.

    A request may wait longer, for a slot or for its model to be loaded. Its stream then begins with
    comments.

    Args:
        pieces: The bodies of the events. Closed at the end, and if the caller leaves.
        failed: Makes the last bodies after an error that ends the stream.
        last: The event after the last piece; None for none.
        are_typed: Whether each body has its type, which names its event.

    Raises:
        ServiceError: The request failed within this time.
    """
    first = asyncio.ensure_future(anext(pieces))

    async def close() -> None:
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await pieces.aclose()

    try:
        await asyncio.wait([first], timeout=PING)
        if first.done():
            first.result()
    except BaseException:
        await close()
        raise

    def event(piece: Mapping[str, Any]) -> bytes:
        name = f"event: {piece['type']}\n" if are_typed else ""
        return f"{name}data: {_ENCODE(piece)}\n\n".encode()

    def error_events(error: ServiceError) -> bytes:
        return b"".join(map(event, failed(error)))

    return EventStream(_events_of(first, pieces, event, error_events, last), error_events, close)


async def _events_of(
    first: Awaitable[dict[str, Any] | None],
    pieces: Pieces,
    event: Callable[[Mapping[str, Any]], bytes],
    error_events: Callable[[ServiceError], bytes],
    last: str | None,
) -> AsyncIterator[bytes]:
    """The pieces as events, and those of the error if they end with one."""
    async with contextlib.aclosing(pieces):
        try:
            if (piece := await first) is not None:
                yield event(piece)
            async for piece in pieces:
                if piece is not None:
                    yield event(piece)
        except ServiceError as error:
            yield error_events(error)
            return
    if last is not None:
        yield f"data: {last}\n\n".encode()
