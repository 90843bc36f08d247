"""Interceptors of all servers: errors become statuses, and messages are parsed last."""

import contextlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TypeAlias

import grpc
import structlog
from google.protobuf.message import DecodeError, Message
from grpc import aio

from shaperouter_service.errors import DEFECT, ExhaustedError, ServiceError
from shaperouter_service.rpc import malformed
from shaperouter_service.rpc.handlers import Context, Handler, parsing, surrounded
from shaperouter_service.rpc.status import abort, request_id_of

log = structlog.get_logger(__name__)

# Returns the context manager to handle a call in, by its method's path `/package.Service/Method`.
Within: TypeAlias = Callable[[str, Context], AbstractContextManager[None]]


class WrapOnce(aio.ServerInterceptor):
    """Applies interceptors to each method once, at its first call, instead of at every call.

    They may depend only on a call's method.
    """

    def __init__(self, interceptors: Sequence[aio.ServerInterceptor]) -> None:
        """Takes the interceptors, outermost first."""
        self._interceptors = interceptors
        self._handlers: dict[str, Handler] = {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """Returns a method's wrapped handler."""
        method = handler_call_details.method
        handler = self._handlers.get(method)
        if handler is None:
            for interceptor in reversed(self._interceptors):
                continuation = partial(interceptor.intercept_service, continuation)
            handler = await continuation(handler_call_details)
            # Callers can name any number of methods that do not exist.
            if handler is not None:
                self._handlers[method] = handler
        return handler


class ErrorInterceptor(aio.ServerInterceptor):
    """Aborts calls with the status of the error they raise, and hides the rest behind INTERNAL."""

    def __init__(self, within: Within = lambda *_: contextlib.nullcontext()) -> None:
        """Takes the context in which calls are handled; it may also refuse them with an error."""
        self._within = within

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """Wraps a method's handler."""
        method = handler_call_details.method

        @contextlib.asynccontextmanager
        async def turning_errors(context: Context) -> AsyncIterator[None]:
            try:
                with self._within(method, context):
                    yield
            except ServiceError as error:
                _release(error)
                await abort(context, error)
            except aio.AbortError:
                raise
            except Exception as error:
                request_id = request_id_of(context)
                ids = {"request_id": request_id} if request_id else {}
                log.exception("unexpected exception", method=method, **ids)
                _release(error)
                if exhausted := ExhaustedError.of(error):
                    await abort(context, exhausted)
                await context.abort(
                    grpc.StatusCode.INTERNAL,
                    DEFECT,
                    context.trailing_metadata() or (),
                )

        return surrounded(await continuation(handler_call_details), turning_errors)


class ParsingInterceptor(aio.ServerInterceptor):
    """Parses messages after all other interceptors have admitted the call."""

    def __init__(self, requests: Mapping[str, type[Message]], max_bytes: Mapping[str, int]) -> None:
        """Takes facts about methods by their paths, `/package.Service/Method`.

        Args:
            requests: Request types.
            max_bytes: Maximum bytes of a request, if lower than gRPC's limit.
        """
        self._requests = requests
        self._max_bytes = max_bytes

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """Wraps a method's handler."""
        handler = await continuation(handler_call_details)
        request_type = self._requests.get(handler_call_details.method)
        if request_type is None:
            return handler

        max_bytes = self._max_bytes.get(handler_call_details.method, math.inf)

        def parse(data: bytes) -> Message:
            if len(data) > max_bytes:
                raise malformed.too_large(data, request_type, max_bytes)
            try:
                return request_type.FromString(data)
            except DecodeError:
                raise malformed.describe(data, request_type) from None

        return parsing(handler, parse)


def _release(error: Exception) -> None:
    """Frees the local variables of the functions that an error has passed.

    gRPC keeps the exception that aborts a call in a reference cycle, and this error is its context.
    Until Python collects the cycle, a refused recording would keep its memory.
    """
    error.__cause__ = error.__context__ = None
    part = error.__traceback__
    while part is not None:
        # Other frames still refer to parts of the traceback, so unlink each.
        part.tb_next, part = None, part.tb_next
