"""The call that is being handled, and its id."""

import contextlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass

import grpc
from grpc import aio

from shaperouter_service.rpc.handlers import Context, Handler, surrounded

REQUEST_ID_KEY = "x-request-id"


@dataclass(kw_only=True)
class Call:
    """A call to this process.

    Attributes:
        request_id: Names it in its trailer, in its errors and in the log.
        method: Path of its method, `/package.Service/Method`.
        logged: Whether the log has its line already that tells how the call ended.
    """

    request_id: str
    method: str
    logged: bool = False


# Each call is a task with a context of its own. None outside of calls, and in workers.
current_call: ContextVar[Call | None] = ContextVar("call", default=None)


def current_request_id() -> str:
    """The id of the current call; a new one where there is no call."""
    call = current_call.get()
    return call.request_id if call else uuid.uuid4().hex


class CallIds(aio.ServerInterceptor):
    """Gives every call an id, refused ones too, and tells it in the call's trailer."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """Begins a call."""
        call = Call(request_id=uuid.uuid4().hex, method=handler_call_details.method)
        current_call.set(call)

        @contextlib.asynccontextmanager
        async def identified(context: Context) -> AsyncIterator[None]:
            context.set_trailing_metadata(((REQUEST_ID_KEY, call.request_id),))
            yield

        return surrounded(await continuation(handler_call_details), identified)
