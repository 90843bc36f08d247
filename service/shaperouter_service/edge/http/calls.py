"""Calls over HTTP: their callers, the gate that they pass, and callers who leave."""

import asyncio
import contextlib
import re
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractContextManager
from http import HTTPStatus
from typing import Any, TypeAlias, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shaperouter_service.auth import bearer_token
from shaperouter_service.edge.http.errors import ErrorBody, HttpError, error_body, error_response
from shaperouter_service.edge.http.event_stream import EventStream
from shaperouter_service.errors import ServiceError, StoppingError
from shaperouter_service.serving.call import CLIENT_ID_KEY, Call
from shaperouter_service.serving.gate import Gate
from shaperouter_service.telemetry import tracing
from shaperouter_service.telemetry.http_calls import HttpMetrics

T = TypeVar("T")
Answer: TypeAlias = Callable[[Request, Call], Awaitable[ASGIApp]]

REQUEST_ID = "x-request-id"
# Ids that callers may give; others are replaced.
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Endpoint:
    """Answers the requests of one path, once they have passed the gate. An ASGI application."""

    def __init__(
        self,
        path: str,
        answer: Answer,
        *,
        gate: Gate,
        metrics: HttpMetrics,
        is_work: bool = True,
        is_open: bool = False,
        for_operators: bool = False,
        error_body: ErrorBody = error_body,
    ) -> None:
        """Takes what answers.

        Args:
            path: The path, which names the calls.
            answer: Answers a request; raises `ServiceError` to refuse it.
            gate: The gate.
            metrics: Counts the calls.
            is_work: Whether calls count against limits, and whether a drain waits for them.
            is_open: Whether calls need no token; see `Path`.
            for_operators: Whether only operators may call.
            error_body: Makes the body of an error.
        """
        self._path = path
        self._answer = answer
        self._gate = gate
        self._metrics = metrics
        self._is_work = is_work
        self._is_open = is_open
        self._for_operators = for_operators
        self._error_body = error_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request."""
        request = Request(scope, receive)
        call, header = _begin(request, self._path)
        tracing.receive(call.method, request.headers.items())
        status = 0
        response: ASGIApp | None = None

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                given = (REQUEST_ID.encode(), header.encode())
                headers = [*message.get("headers", ()), given]
                if not self._gate.is_open:
                    # The router stops: the caller's next request reaches another one.
                    headers.append((b"connection", b"close"))
                message = {**message, "headers": headers}
            await send(message)

        with self._metrics.counted(request.method, self._path, lambda: status):
            try:
                with self._passed(call, request), _refused_at_the_end():
                    response = await self._answer(request, call)
                    await response(scope, receive, sending)
            except ServiceError as error:
                if not status:
                    response = error_response(error, body=self._error_body)
                    await response(scope, receive, sending)
                elif isinstance(response, EventStream):
                    # It was cut off at the end of the grace; other errors are in its events.
                    await sending(
                        {"type": "http.response.body", "body": response.error_events(error)}
                    )
            except ClientDisconnect:
                status = CLIENT_CLOSED_REQUEST

    def _passed(self, call: Call, request: Request) -> AbstractContextManager[None]:
        if self._is_open:
            return contextlib.nullcontext()
        return self._gate.passed(
            call,
            token=bearer_token(request.headers.get("authorization", "")),
            is_work=self._is_work,
            for_operators=self._for_operators,
        )


@contextlib.contextmanager
def _refused_at_the_end() -> Iterator[None]:
    """Refuses a request that the server cancels because its grace is over.

    Raises:
        StoppingError: The server has cancelled the request.
    """
    try:
        yield
    except asyncio.CancelledError:
        # The server cancels a task once, and then waits for its answer.
        if task := asyncio.current_task():
            task.uncancel()
        raise StoppingError from None


# The status that servers log for callers who have left.
CLIENT_CLOSED_REQUEST = 499


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Awaits work, and cancels it if the caller leaves. The body has been read.

    Raises:
        ClientDisconnect: The caller has left.
    """
    task = asyncio.ensure_future(work)
    left = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait({task, left}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientDisconnect
    finally:
        for each in (task, left):
            each.cancel()
        await asyncio.gather(task, left, return_exceptions=True)


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _begin(request: Request, path: str) -> tuple[Call, str]:
    """The call, and the id for the header of its answer."""
    own, given = uuid.uuid4().hex, request.headers.get(REQUEST_ID, "")
    is_usable = _REQUEST_ID.fullmatch(given) is not None
    host = request.client.host if request.client else "unknown"
    call = Call(
        # Callers may repeat theirs, but runs need ids of their own.
        request_id=f"{given}-{own[:12]}" if is_usable else own,
        method=f"{request.method} {path}",
        peer=host,
        client=request.headers.get(CLIENT_ID_KEY, host),
    )
    return call, given if is_usable else own


def not_found(path: str) -> HttpError:
    """The error of a path that does not exist."""
    return HttpError(HTTPStatus.NOT_FOUND, "unknown_url", f"there is nothing at {path}")
