"""Letting in those who have a token, and remembering who they are for the rest of the call."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import grpc
from grpc import aio

from shaperouter_service.auth.accounts import Accounts
from shaperouter_service.auth.clients import Clients
from shaperouter_service.errors import NotOperatorError, ServiceError, UnauthenticatedError
from shaperouter_service.rpc.handlers import Context, Handler, surrounded
from shaperouter_service.telemetry.access import AccessMetrics, Refusal
from shaperouter_service.telemetry.payer import current_payer

_SCHEME = "bearer "

# What takes of what all clients share, beyond the request itself.
_FOR_OPERATORS = {"/shaperouter.v1.GraphService/WarmGraphs"}

# Probes of proxies and kubelets have no token, and it tells nothing but whether this is ready.
_OPEN = "/grpc.health.v1.Health/"


class Authentication(aio.ServerInterceptor):
    """Refuses calls whose token does not let them in, before anything of them is parsed."""

    def __init__(self, clients: Clients, metrics: AccessMetrics) -> None:
        """Takes the clients, and counts refusals."""
        self._clients = clients
        self._metrics = metrics
        self._accounts = Accounts(metrics)
        for client in clients.known():
            self._accounts.of(client)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """Finds out who calls."""
        if handler_call_details.method.startswith(_OPEN):
            return await continuation(handler_call_details)
        token = _bearer_token(handler_call_details)
        client = None if token is None else self._clients.of_token(token)
        current_payer.set(None if client is None else self._accounts.of(client))
        handler = await continuation(handler_call_details)
        if handler is None:
            return handler
        if client is None:
            self._metrics.refused(Refusal.MISSING if token is None else Refusal.UNKNOWN)
            return _refusing(handler, UnauthenticatedError(has_token=token is not None))
        if handler_call_details.method in _FOR_OPERATORS and not client.operator:
            self._metrics.refused(Refusal.NOT_OPERATOR)
            return _refusing(handler, NotOperatorError(client.name))
        return handler


def _bearer_token(call: grpc.HandlerCallDetails) -> str | None:
    for key, value in call.invocation_metadata or ():
        # The scheme's name may be written in any case (RFC 9110).
        if key == "authorization" and str(value[: len(_SCHEME)]).lower() == _SCHEME:
            return str(value[len(_SCHEME) :]).strip()
    return None


def _refusing(handler: Handler, error: ServiceError) -> Handler:
    """A handler of the same form that raises an error; what was sent stays bytes."""

    @contextlib.asynccontextmanager
    async def refusing(_: Context) -> AsyncIterator[None]:
        raise error
        yield

    return surrounded(handler, refusing)
