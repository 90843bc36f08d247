"""Wrappers for the handlers of unary and streaming methods."""

import contextlib
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias

import grpc
from grpc import aio

# In quotes: generic for type checkers only.
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any] | None"
Context: TypeAlias = "aio.ServicerContext[Any, Any]"
Around: TypeAlias = Callable[[Context], AbstractAsyncContextManager[None]]
Convert: TypeAlias = Callable[[Any], Any]

_MAKERS = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, False): grpc.stream_unary_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}


def surrounded(handler: Handler, around: Around) -> Handler:
    """Wraps a handler so that its calls run inside `around(context)`; None stays None."""
    if handler is None:
        return None
    behaviour = _behaviour(handler)
    call: Any
    if handler.response_streaming and inspect.isasyncgenfunction(behaviour):

        async def call(request: Any, context: Context) -> AsyncIterator[Any]:
            async with (
                around(context),
                contextlib.aclosing(behaviour(request, context)) as responses,
            ):
                async for response in responses:
                    yield response

    else:
        # The method returns its only response, or writes responses to its context.
        async def call(request: Any, context: Context) -> Any:
            async with around(context):
                return await behaviour(request, context)

    return _make(handler, call, handler.request_deserializer)


def parsing(handler: Handler, parse: Convert) -> Handler:
    """Wraps a handler so that it parses messages itself.

    gRPC parses a message before any of our code sees the call. Parsing later lets the interceptors
    refuse a call first, and makes an invalid message an error like any other.
    """
    if handler is None:
        return None
    behaviour = _behaviour(handler)

    async def parsed(messages: AsyncIterator[bytes]) -> AsyncIterator[Any]:
        async for message in messages:
            yield parse(message)

    convert = parsed if handler.request_streaming else parse
    call: Any
    if handler.response_streaming:

        async def call(request: Any, context: Context) -> AsyncIterator[Any]:
            async with contextlib.aclosing(behaviour(convert(request), context)) as responses:
                async for response in responses:
                    yield response

    else:

        async def call(request: Any, context: Context) -> Any:
            return await behaviour(convert(request), context)

    return _make(handler, call, None)


def _behaviour(handler: Any) -> Any:
    request = "stream" if handler.request_streaming else "unary"
    response = "stream" if handler.response_streaming else "unary"
    return getattr(handler, f"{request}_{response}")


def _make(handler: Any, call: Any, deserializer: Any) -> Handler:
    make = _MAKERS[handler.request_streaming, handler.response_streaming]
    wrapped: Handler = make(call, deserializer, handler.response_serializer)
    return wrapped
