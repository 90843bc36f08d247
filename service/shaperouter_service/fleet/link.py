"""The connection to one worker: its Watch stream, its runs and its calls."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextvars import Context
from enum import StrEnum
from functools import partial
from typing import Any, TypeVar

import structlog
from grpc import ChannelCredentials, StatusCode, aio

from shaperouter.v1 import worker_pb2, worker_pb2_grpc
from shaperouter_service.errors import Code, RelayedError, StoppingError, WorkerLostError
from shaperouter_service.fleet.run_stream import RunStream
from shaperouter_service.generation.run_events import RunCompletion, RunEvent
from shaperouter_service.generation.run_request import RunRequest
from shaperouter_service.inference.calls import WorkerCall, WorkerResult
from shaperouter_service.routing.deployments import Deployment, Orders
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.routing.snapshots import Snapshot
from shaperouter_service.rpc.heartbeat import (
    HEARTBEAT,
    MISSED_HEARTBEATS,
    PING_INTERVAL,
    PING_TIMEOUT,
)
from shaperouter_service.rpc.status import from_call
from shaperouter_service.rpc.tls import WorkerTls
from shaperouter_service.telemetry.tracing import outgoing_context
from shaperouter_service.wire.calls import (
    ISOLATED_KEY,
    worker_call_to_message,
    worker_result_from_message,
)
from shaperouter_service.wire.deployments import deployments_from_message, orders_to_message
from shaperouter_service.wire.run_events import run_event_from_message
from shaperouter_service.wire.run_requests import run_request_to_message
from shaperouter_service.wire.signatures import signature_from_message, signature_to_message
from shaperouter_service.wire.snapshots import SnapshotReader

M = TypeVar("M")

log = structlog.get_logger(__name__)

# Seconds until the next attempt to watch a worker: the first pause, so that a returning worker is
# found quickly, and the longest. Each failure in a row doubles it.
FIRST_RETRY, LAST_RETRY = 0.1, 2.0

# Timeout in seconds of a request for graphs or models, which a worker answers at once.
ANSWER_TIMEOUT = 10.0

# When a process dies, its runs end without a reason, at the same moment as the Watch stream. So a
# run waits this many seconds for the Watch stream to give a reason.
VERDICT_TIMEOUT = 1.0

_CHANNEL_OPTIONS = [
    # Reconnect to a returning worker quickly, instead of after the default of up to 2 minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 300),
    ("grpc.enable_http_proxy", 0),
    # Snapshots of many graphs are large, and workers are trusted.
    ("grpc.max_receive_message_length", -1),
    ("grpc.keepalive_time_ms", int(PING_INTERVAL * 1000)),
    # The option that gRPC uses; grpc.keepalive_timeout_ms leaves it at a minute.
    ("grpc.http2.ping_timeout_ms", int(PING_TIMEOUT * 1000)),
    # A router often only receives for a long time. By default, gRPC would stop sending pings after
    # two.
    ("grpc.http2.max_pings_without_data", 0),
]


class Loss(StrEnum):
    """Why a run cannot stay on its worker."""

    LOST = "lost"  # The connection broke, usually because the process died.
    HUNG = "hung"  # The worker stopped responding, although no connection broke.
    DRAINING = "draining"  # The worker is being stopped and returned the run.


class RunInterruptedError(Exception):
    """A run or call cannot continue on its worker, but may continue on another.

    Attributes:
        loss: Why it cannot continue.
        isolated: Whether it is a call that was computed alone.
    """

    def __init__(self, address: str, loss: Loss, *, isolated: bool = False) -> None:
        """Stores the worker's address, the reason, and whether a call was computed alone."""
        super().__init__(f"the worker at {address} is {loss}")
        self.loss = loss
        self.isolated = isolated


class WorkerLink:
    """A worker at an address. Only the event loop may use it.

    Attributes:
        address: The address that it listens on.
        watches: Number of times that watching it has begun.
    """

    def __init__(
        self,
        address: str,
        *,
        on_message: Callable[[str], None],
        on_snapshot: Callable[["WorkerLink", Snapshot], None],
        on_lost: Callable[["WorkerLink", Loss], None],
        router_id: str = "",
        tls: WorkerTls | None = None,
    ) -> None:
        """Prepares the connection, which `watch` opens.

        Args:
            address: Address of the worker, in gRPC's notation.
            on_message: Called with the address whenever the worker sends something, even that it
                drains.
            on_snapshot: Called with each snapshot.
            on_lost: Called with the reason when the worker takes no more runs.
            router_id: Identifies this router to the worker.
            tls: TLS settings of the connection; None for plain text.
        """
        self.address = address
        self.watches = 0
        self._on_message = on_message
        self._on_snapshot = on_snapshot
        self._on_lost = on_lost
        self._router_id = router_id
        self._tls = tls
        self._credentials = tls.credentials() if tls else None
        self._channel = _channel(address, tls, self._credentials)
        self._stub = worker_pb2_grpc.WorkerServiceStub(self._channel)
        # The call that carries the runs, once there has been one.
        self._stream: RunStream | None = None
        self._running = 0
        # Calls in progress, and the reason if this side has cancelled them.
        self._calls: dict[Any, Loss | None] = {}
        self._draining = False
        # How the watched process ends.
        self._verdict: asyncio.Future[Loss] | None = None
        # The latest error since the worker could last be watched.
        self._logged_reasons: set[str] = set()
        # Pause before the next attempt if this one fails.
        self._retry_seconds = FIRST_RETRY

    @property
    def running(self) -> int:
        """Number of runs and calls in progress on this link."""
        return self._running + len(self._calls)

    async def watch(self) -> None:
        """Follows the worker's state until cancelled, over any number of its restarts."""
        while True:
            self.watches += 1
            verdict = self._verdict = asyncio.get_running_loop().create_future()
            loss = await self._watch_process()
            verdict.set_result(loss)
            self._on_lost(self, loss)
            if loss is Loss.DRAINING:
                # Runs there may continue to their end.
                self._draining = True
            else:
                self._interrupt(loss)
            await asyncio.sleep(self._retry_seconds)
            self._retry_seconds = min(2 * self._retry_seconds, LAST_RETRY)
            await self._renew_credentials()

    async def _renew_credentials(self) -> None:
        """Reconnects with the current certificate files, once no run uses this link."""
        if self._tls is None or self.running:
            return
        credentials = self._tls.credentials()
        if credentials is not self._credentials:
            before, self._credentials = self._channel, credentials
            self._channel = _channel(self.address, self._tls, credentials)
            self._stub = worker_pb2_grpc.WorkerServiceStub(self._channel)
            self._stream = None
            await before.close()

    async def _watch_process(self) -> Loss:
        # With TLS, a failed connection may mean that nothing listens, or that a certificate was
        # refused. Waiting does not help against the latter, so it must be reported.
        wait = self._tls is None
        request = worker_pb2.WatchRequest(router=self._router_id)
        call, reader = self._stub.Watch(request, wait_for_ready=wait), SnapshotReader()
        try:
            # A worker counts as silent only after its first message, because loading models takes
            # time.
            message = await call.read()
            while isinstance(message, worker_pb2.WatchResponse):
                self._draining = False
                self._on_message(self.address)
                self._on_snapshot(self, reader.read(message))
                self._retry_seconds = FIRST_RETRY
                self._logged_reasons.clear()
                message = await _unless_silent(call.read())
        except TimeoutError:
            log.warning("worker silent", address=self.address)
            return Loss.HUNG
        except aio.AioRpcError as error:
            reason = error.details() or ""
            # Log each error once: a worker that was absent may return and refuse the certificate.
            if reason not in self._logged_reasons:
                self._logged_reasons.add(reason)
                log.warning("worker lost", address=self.address, reason=reason)
            return Loss.DRAINING if self._draining else Loss.LOST
        # A worker's invalid message must not end the watching, which would hide the worker for
        # good.
        except Exception:
            if self._is_first_failure:
                log.exception("handling a worker's message failed", address=self.address)
            return Loss.LOST
        finally:
            call.cancel()
        self._on_message(self.address)
        return Loss.DRAINING

    @property
    def _is_first_failure(self) -> bool:
        """Whether this attempt had connected, or is the first failure in a row."""
        return self._retry_seconds == FIRST_RETRY

    def _interrupt(self, loss: Loss) -> None:
        for call in self._calls:
            self._calls[call] = loss
            call.cancel()
        if self._stream is not None:
            self._stream.end(partial(RunInterruptedError, self.address, loss))

    async def run(
        self, request: RunRequest, seconds_left: float | None
    ) -> AsyncGenerator[RunEvent, None]:
        """Runs a request on the worker. Closing the iterator early cancels it.

        Args:
            request: The run.
            seconds_left: Seconds until the deadline, if there is one.

        Raises:
            TimeoutError: The worker has not said in time what the run waits for.
            RunInterruptedError: The worker is gone, silent, or draining.
            RelayedError: It refused the run.
        """
        run = self._open_stream().start(
            run_request_to_message(request),
            seconds_left=seconds_left,
            trace_context=outgoing_context(),
        )
        self._running += 1
        verdict = self._verdict
        try:
            while True:
                event = run_event_from_message(await run.read())
                if event is None:
                    continue
                yield event
                if isinstance(event, RunCompletion):
                    return
        except RelayedError as error:
            loss = await self._judged_loss(error, verdict)
            if loss is None:
                raise
            raise RunInterruptedError(self.address, loss) from error
        finally:
            run.close()
            self._running -= 1

    async def call(self, call: WorkerCall, seconds_left: float | None) -> WorkerResult:
        """Calls a model that answers once on the worker. Cancelling the task cancels the call.

        Args:
            call: The call.
            seconds_left: Seconds until the deadline, if there is one.

        Raises:
            RunInterruptedError: The worker is gone, silent, or draining.
            RelayedError: It refused the call.
        """
        rpc = self._stub.Call(
            worker_call_to_message(call),
            timeout=seconds_left,
            metadata=tuple(outgoing_context().items()),
        )
        self._calls[rpc] = None
        verdict = self._verdict
        try:
            return worker_result_from_message(await rpc)
        except aio.AioRpcError as error:
            relayed = from_call(error)
            loss = await self._judged_loss(relayed, verdict)
            if loss is None:
                raise relayed from error
            raise RunInterruptedError(
                self.address, loss, isolated=await _was_isolated(rpc)
            ) from error
        except asyncio.CancelledError:
            # gRPC raises this also if this side cancelled the call but not this task.
            task, loss = asyncio.current_task(), self._calls[rpc]
            if loss is None or (task is not None and task.cancelling()):
                raise
            raise RunInterruptedError(
                self.address, loss, isolated=await _was_isolated(rpc)
            ) from None
        finally:
            del self._calls[rpc]
            rpc.cancel()

    async def _judged_loss(
        self, error: RelayedError, verdict: asyncio.Future[Loss] | None
    ) -> Loss | None:
        """The kind of loss that an error shows, confirmed by the Watch stream if possible."""
        loss = self._loss(error)
        if loss is Loss.LOST and verdict is not None:
            # A stopping server ends runs that are just arriving like a dying one.
            with contextlib.suppress(TimeoutError):
                # `wait_for` would lose a cancellation that arrives together with the result.
                async with asyncio.timeout(VERDICT_TIMEOUT):
                    loss = await asyncio.shield(verdict)
        return loss

    def _open_stream(self) -> RunStream:
        """The stream of runs, or a new one after the end of the last."""
        if self._stream is None or self._stream.has_ended:
            # Not in the context of the run that happens to be the first.
            self._stream = Context().run(RunStream, self._stub)
        return self._stream

    async def request_compile(self, signatures: Iterable[Signature]) -> dict[Signature, str]:
        """Requests graphs from the worker without waiting for them.

        Args:
            signatures: The graphs, in order of priority.

        Returns:
            The graphs that it will not make, with the reason.

        Raises:
            WorkerLostError: The worker is gone, or does not answer.
            RelayedError: It refused the whole request.
        """
        request = worker_pb2.WantRequest(signatures=map(signature_to_message, signatures))
        response = await self._ask(self._stub.Want(request, timeout=ANSWER_TIMEOUT))
        return {signature_from_message(each.signature): each.reason for each in response.refused}

    async def deploy(self, orders: Orders) -> list[Deployment]:
        """Tells the worker which models the service should have, without waiting for them.

        Returns:
            The newest deployments that the worker knows.

        Raises:
            WorkerLostError: The worker is gone, or does not answer.
            RelayedError: It refused.
        """
        message = orders_to_message(orders)
        response = await self._ask(self._stub.Deploy(message, timeout=ANSWER_TIMEOUT))
        return deployments_from_message(response)

    async def _ask(self, call: Awaitable[M]) -> M:
        """Waits for the answer to a request that a worker answers at once."""
        try:
            return await call
        except aio.AioRpcError as error:
            if error.code() in {StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED}:
                raise WorkerLostError(self.address) from error
            raise from_call(error) from error
        except asyncio.CancelledError:
            # gRPC raises this also if the connection was closed and this task was not cancelled.
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise WorkerLostError(self.address) from None

    def _loss(self, error: RelayedError) -> Loss | None:
        """The kind of loss that an error of a run shows; None if the error is the run's own."""
        # Stopping servers answer like this to runs that they no longer wait for, and to runs that
        # arrive at that moment. This can arrive before the news that the worker drains.
        if error.code is Code.CANCELLED:
            return Loss.DRAINING
        if error.code is not Code.UNAVAILABLE:
            return None
        if self._draining or error.reason == StoppingError.reason:
            return Loss.DRAINING
        return Loss.LOST

    async def close(self) -> None:
        """Closes the connection."""
        await self._channel.close()


async def _was_isolated(rpc: Any) -> bool:
    """Whether a call that has ended was computed alone."""
    return any(name == ISOLATED_KEY for name, _ in await rpc.initial_metadata() or ())


def _channel(
    address: str, tls: WorkerTls | None, credentials: ChannelCredentials | None
) -> aio.Channel:
    if tls is None or credentials is None:
        return aio.insecure_channel(address, _CHANNEL_OPTIONS)
    options: list[tuple[str, int | str]] = [*_CHANNEL_OPTIONS]
    if tls.name is not None:
        options.append(("grpc.ssl_target_name_override", tls.name))
    return aio.secure_channel(address, credentials, options)


async def _unless_silent(reading: Awaitable[Any]) -> Any:
    """Waits for a worker's next message.

    The wait is split into short pieces, so that a pause of this process, which leaves the worker's
    messages unread, is not taken for silence of the worker.

    Raises:
        TimeoutError: It has missed too many heartbeats.
    """
    task = asyncio.ensure_future(reading)
    try:
        for _ in range(MISSED_HEARTBEATS):
            done, _ = await asyncio.wait({task}, timeout=HEARTBEAT)
            if done:
                return task.result()
    finally:
        task.cancel()
    raise TimeoutError
