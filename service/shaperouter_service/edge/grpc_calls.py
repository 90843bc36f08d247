"""Calls over gRPC: their callers, the gate that they pass, and the header of their answers."""

import contextlib
import time
import uuid
from collections.abc import AsyncGenerator, Collection, Iterable, Iterator
from contextvars import ContextVar
from typing import TypeAlias, TypeVar

from shaperouter_service.auth import bearer_token
from shaperouter_service.rpc.handlers import Context
from shaperouter_service.rpc.status import REQUEST_ID_KEY
from shaperouter_service.serving.call import CLIENT_ID_KEY, Call
from shaperouter_service.serving.gate import Gate
from shaperouter_service.telemetry import tracing

T = TypeVar("T")
Metadata: TypeAlias = Iterable[tuple[str, str | bytes]]

# A deadline more than ten years away, in seconds, counts as none. Callers give centuries if they
# mean no deadline, and gRPC takes a deadline after the year 2262 for one in the past.
NO_DEADLINE = 10 * 365 * 24 * 3600.0

# Probes of proxies and kubelets have no token, and learn nothing but whether the service is ready.
_HEALTH = "/grpc.health.v1.Health/"

# Each call is a task with a context of its own.
_current: ContextVar[Call] = ContextVar("call")


class CallGate:
    """Makes calls pass the gate; see `rpc.interceptor.Within`.

    Attributes:
        gate: The gate.
    """

    def __init__(
        self,
        gate: Gate,
        *,
        work: Collection[str],
        for_operators: Collection[str] = (),
        for_probes: Collection[str] = (),
    ) -> None:
        """Takes the gate, and sets of methods; see `GrpcDoor`."""
        self.gate = gate
        self._work = work
        self._for_operators = for_operators
        self._for_probes = for_probes

    @contextlib.contextmanager
    def __call__(self, method: str, context: Context) -> Iterator[None]:
        """Surrounds the handling of a call; see `Gate.passed`."""
        metadata = context.invocation_metadata() or ()
        call = _begin(method, context)
        tracing.receive(call.method, metadata)
        context.set_trailing_metadata(((REQUEST_ID_KEY, call.request_id),))
        if method.startswith(_HEALTH) or method in self._for_probes:
            yield
            return
        with self.gate.passed(
            call,
            token=_token(metadata),
            is_work=method in self._work,
            for_operators=method in self._for_operators,
        ):
            yield

    @contextlib.contextmanager
    def request_of_stream(self, context: Context) -> Iterator[None]:
        """Surrounds the handling of one of a stream's requests, in a task of its own.

        Each counts against the limits as a call does; the stream itself does not.
        """
        call = _begin(current_call().method, context)
        metadata = context.invocation_metadata() or ()
        with self.gate.passed(call, token=_token(metadata), is_work=True, for_operators=False):
            yield


def current_call() -> Call:
    """The call that is being handled."""
    return _current.get()


async def with_header(events: AsyncGenerator[T, None], context: Context) -> AsyncGenerator[T, None]:
    """Yields events and closes their generator at the end; sends the header before the first.

    Not earlier: gRPC's clients do not retry a call whose header they have received.
    """
    async with contextlib.aclosing(events):
        header_sent = False
        async for event in events:
            if not header_sent:
                header_sent = True
                await context.send_initial_metadata(((REQUEST_ID_KEY, current_call().request_id),))
            yield event


def _begin(method: str, context: Context) -> Call:
    """Makes the call that the current task handles from now on."""
    metadata = context.invocation_metadata() or ()
    peer = context.peer()
    call = Call(
        request_id=uuid.uuid4().hex,
        method=method.removeprefix("/"),
        peer=peer,
        client=next(_values(metadata, CLIENT_ID_KEY), _host(peer)),
        deadline=_deadline(context),
    )
    _current.set(call)
    return call


def _values(metadata: Metadata, key: str) -> Iterator[str]:
    return (value for name, value in metadata if name == key and isinstance(value, str))


def _token(metadata: Metadata) -> str | None:
    tokens = map(bearer_token, _values(metadata, "authorization"))
    return next((token for token in tokens if token is not None), None)


def _host(peer: str) -> str:
    """The host of an address: processes of one host are one client, whatever their ports."""
    kind, _, rest = peer.partition(":")
    return rest.rpartition(":")[0] if kind in ("ipv4", "ipv6") else kind


def _deadline(context: Context) -> float | None:
    remaining = context.time_remaining()
    if remaining is None or remaining > NO_DEADLINE:
        return None
    return time.monotonic() + remaining
