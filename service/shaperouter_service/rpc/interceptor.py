"""Turns every way a call can go wrong into a status that tells the caller what to do."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

import grpc
import structlog
from google.protobuf.message import DecodeError, Message
from grpc import aio

from shaperouter_service.errors import InvalidRequestError, ServiceError
from shaperouter_service.rpc import malformed
from shaperouter_service.rpc.status import abort

log = structlog.get_logger(__name__)

# In quotes: generic for type checkers only.
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any] | None"


class ErrorInterceptor(aio.ServerInterceptor):
    """Aborts calls with the status of the error they raise, and hides the rest behind INTERNAL.

    Concerns the methods of the given services; health and reflection are left to their own.
    """

    def __init__(self, requests: dict[str, type[Message]]) -> None:
        """Takes the request type of each method by its path, `/package.Service/Method`."""
        self._requests = requests

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """Wraps a method's handler."""
        handler = await continuation(handler_call_details)
        request_type = self._requests.get(handler_call_details.method)
        if handler is None or request_type is None:
            return handler

        def deserialize(data: bytes) -> Message | InvalidRequestError:
            try:
                return request_type.FromString(data)
            except DecodeError:
                return malformed.describe(data, request_type)

        method = handler_call_details.method
        if handler.request_streaming:
            return grpc.stream_stream_rpc_method_handler(
                _both_streams(handler.stream_stream, method),
                deserialize,
                handler.response_serializer,
            )
        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(
                _stream(handler.unary_stream, method), deserialize, handler.response_serializer
            )
        return grpc.unary_unary_rpc_method_handler(
            _unary(handler.unary_unary, method), deserialize, handler.response_serializer
        )


def _unary(behaviour: Any, method: str) -> Any:
    async def call(request: Any, context: aio.ServicerContext[Any, Any]) -> Any:
        try:
            return await behaviour(_valid(request), context)
        except Exception as error:
            await _abort(context, error, method)

    return call


def _stream(behaviour: Any, method: str) -> Any:
    async def call(request: Any, context: aio.ServicerContext[Any, Any]) -> AsyncIterator[Any]:
        try:
            async for response in behaviour(_valid(request), context):
                yield response
        except Exception as error:
            await _abort(context, error, method)

    return call


def _both_streams(behaviour: Any, method: str) -> Any:
    async def valid(requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for request in requests:
            yield _valid(request)

    async def call(
        requests: AsyncIterator[Any], context: aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[Any]:
        try:
            async for response in behaviour(valid(requests), context):
                yield response
        except Exception as error:
            await _abort(context, error, method)

    return call


def _valid(request: Any) -> Any:
    if isinstance(request, InvalidRequestError):
        raise request
    return request


async def _abort(context: aio.ServicerContext[Any, Any], error: Exception, method: str) -> None:
    if isinstance(error, ServiceError):
        await abort(context, error)
    if isinstance(error, aio.AbortError | asyncio.CancelledError):
        raise error
    log.error("defect", method=method, exc_info=error)
    await context.abort(grpc.StatusCode.INTERNAL, "internal error; the service's log tells more")
