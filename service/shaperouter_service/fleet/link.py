"""The connection to one worker: its Watch stream, and runs."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from enum import StrEnum
from typing import Any

import structlog
from grpc import ChannelCredentials, StatusCode, aio

from shaperouter.v1 import worker_pb2, worker_pb2_grpc
from shaperouter_service.errors import StoppingError, WorkerLostError
from shaperouter_service.rpc.heartbeat import (
    HEARTBEAT,
    MISSED_HEARTBEATS,
    PING_INTERVAL,
    PING_TIMEOUT,
)
from shaperouter_service.rpc.status import from_call, reason_of
from shaperouter_service.rpc.tls import WorkerTls
from shaperouter_service.telemetry.tracing import outgoing_metadata

log = structlog.get_logger(__name__)

# Seconds until a worker is watched again: at first, so that one that comes back is found within a
# moment, and at most. Doubled at each attempt of a row that leads to nothing.
FIRST_RETRY, LAST_RETRY = 0.1, 2.0

# Seconds a worker has to answer a wish, which costs it next to nothing.
WANT_TIMEOUT = 10.0

# Seconds that a run which ends without a reason waits to hear why from the watching, which a
# process that dies ends in the same moment.
VERDICT_TIMEOUT = 1.0

_CHANNEL_OPTIONS = [
    # A worker that comes back is found within a moment, not after the default of up to 2 minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 300),
    ("grpc.enable_http_proxy", 0),
    # Snapshots of many graphs; workers are trusted.
    ("grpc.max_receive_message_length", -1),
    ("grpc.keepalive_time_ms", int(PING_INTERVAL * 1000)),
    # What gRPC goes by; grpc.keepalive_timeout_ms leaves it at a minute.
    ("grpc.http2.ping_timeout_ms", int(PING_TIMEOUT * 1000)),
    # A router only listens for long times, and by default stops asking after two pings then.
    ("grpc.http2.max_pings_without_data", 0),
]


class Loss(StrEnum):
    """Why a run cannot stay on its worker."""

    LOST = "lost"  # The connection broke: most often, the process has died.
    HUNG = "hung"  # The worker says nothing any more, though nothing broke.
    DRAINING = "draining"  # It is being stopped, and gave the run back.


class RunInterruptedError(Exception):
    """A run cannot go on where it is, and may go on elsewhere."""

    def __init__(self, address: str, loss: Loss) -> None:
        """Takes the worker's address and the reason."""
        super().__init__(f"the worker at {address} is {loss}")
        self.loss = loss


class WorkerLink:
    """A worker at an address. Belongs to the event loop.

    Attributes:
        address: Where it listens.
    """

    def __init__(
        self,
        address: str,
        *,
        on_heard: Callable[[str], None],
        on_snapshot: Callable[["WorkerLink", worker_pb2.WatchResponse], None],
        on_lost: Callable[["WorkerLink", Loss], None],
        tls: WorkerTls | None = None,
    ) -> None:
        """Prepares the connection; `watch` makes it.

        Args:
            address: Of the worker, as gRPC writes it.
            on_heard: Told the address whenever the worker says something, be it that it drains.
            on_snapshot: Told each snapshot.
            on_lost: Told when the worker takes no more runs, and why.
            tls: What is asked of it; None speaks plain text.
        """
        self.address = address
        self._on_heard = on_heard
        self._on_snapshot = on_snapshot
        self._on_lost = on_lost
        self._tls = tls
        self._credentials = tls.credentials() if tls else None
        self._channel = _channel(address, tls, self._credentials)
        self._stub = worker_pb2_grpc.WorkerServiceStub(self._channel)
        # The calls under way, and why we have cancelled them if we have.
        self._runs: dict[Any, Loss | None] = {}
        self._draining = False
        # How the life that is watched ends.
        self._verdict: asyncio.Future[Loss] | None = None
        # Why it could not be watched, since it last could.
        self._told_reasons: set[str] = set()
        # Until the next attempt to watch it, should this one end.
        self._retry_seconds = FIRST_RETRY

    @property
    def running(self) -> int:
        """Runs under way through this link."""
        return len(self._runs)

    async def watch(self) -> None:
        """Follows the worker's state until cancelled, through any number of its lives."""
        while True:
            verdict = self._verdict = asyncio.get_running_loop().create_future()
            loss = await self._watch_life()
            verdict.set_result(loss)
            self._on_lost(self, loss)
            if loss is Loss.DRAINING:
                # What runs there may go on to its end.
                self._draining = True
            else:
                self._interrupt_runs(loss)
            await asyncio.sleep(self._retry_seconds)
            self._retry_seconds = min(2 * self._retry_seconds, LAST_RETRY)
            await self._renew_credentials()

    async def _renew_credentials(self) -> None:
        """Connects with what the files of certificates say now, once nothing runs through this."""
        if self._tls is None or self._runs:
            return
        credentials = self._tls.credentials()
        if credentials is not self._credentials:
            before, self._credentials = self._channel, credentials
            self._channel = _channel(self.address, self._tls, credentials)
            self._stub = worker_pb2_grpc.WorkerServiceStub(self._channel)
            await before.close()

    async def _watch_life(self) -> Loss:
        # With TLS, no connection can mean that nobody answers, and that certificates are refused.
        # The latter never passes by waiting, and has to be told.
        wait = self._tls is None
        call = self._stub.Watch(worker_pb2.WatchRequest(), wait_for_ready=wait)
        try:
            # Only who has spoken can fall silent: models take their time to be loaded.
            snapshot = await call.read()
            while isinstance(snapshot, worker_pb2.WatchResponse):
                self._draining = False
                self._on_heard(self.address)
                self._on_snapshot(self, snapshot)
                self._retry_seconds = FIRST_RETRY
                self._told_reasons.clear()
                snapshot = await _unless_silent(call.read())
        except TimeoutError:
            log.warning("worker silent", address=self.address)
            return Loss.HUNG
        except aio.AioRpcError as error:
            reason = error.details() or ""
            # Once each: a worker that was not there may be there and refuse the certificate.
            if reason not in self._told_reasons:
                self._told_reasons.add(reason)
                log.warning("worker lost", address=self.address, reason=reason)
            return Loss.DRAINING if self._draining else Loss.LOST
        # What one worker says must not end the watching, and so blind the router for good.
        except Exception:
            if self._is_first_failure:
                log.exception("worker not understood", address=self.address)
            return Loss.LOST
        finally:
            call.cancel()
        self._on_heard(self.address)
        return Loss.DRAINING

    @property
    def _is_first_failure(self) -> bool:
        """Whether this attempt led to something or is the first of a row that does not."""
        return self._retry_seconds == FIRST_RETRY

    def _interrupt_runs(self, loss: Loss) -> None:
        for call in self._runs:
            self._runs[call] = loss
            call.cancel()

    async def run(
        self, request: worker_pb2.RunRequest, seconds_left: float | None
    ) -> AsyncGenerator[worker_pb2.RunResponse, None]:
        """Runs a request on the worker; closing the iterator early cancels it.

        Args:
            request: What to run.
            seconds_left: Until the deadline, if there is one.

        Raises:
            RunInterruptedError: The worker is gone, silent, or drains.
            RelayedError: It refused.
        """
        call = self._stub.Run(request, timeout=seconds_left, metadata=outgoing_metadata())
        self._runs[call] = None
        verdict = self._verdict
        try:
            async for response in call:
                yield response
        except aio.AioRpcError as error:
            loss = self._loss(error)
            if loss is None:
                raise from_call(error) from error
            if loss is Loss.LOST and verdict is not None:
                # A server that stops ends calls that just come like one that dies.
                with contextlib.suppress(TimeoutError):
                    # `wait_for` would lose a cancellation that comes together with the verdict.
                    async with asyncio.timeout(VERDICT_TIMEOUT):
                        loss = await asyncio.shield(verdict)
            raise RunInterruptedError(self.address, loss) from error
        except asyncio.CancelledError:
            # Also what gRPC raises where we have cancelled the call and nobody has cancelled us.
            task, loss = asyncio.current_task(), self._runs[call]
            if loss is None or (task is not None and task.cancelling()):
                raise
            raise RunInterruptedError(self.address, loss) from None
        finally:
            del self._runs[call]
            call.cancel()

    async def want(self, request: worker_pb2.WantRequest) -> worker_pb2.WantResponse:
        """Asks the worker for graphs, and does not wait for them.

        Args:
            request: Which.

        Raises:
            WorkerLostError: The worker is gone, or does not answer.
            RelayedError: It refused the whole wish.
        """
        try:
            return await self._stub.Want(request, timeout=WANT_TIMEOUT)
        except aio.AioRpcError as error:
            if error.code() in {StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED}:
                raise WorkerLostError(self.address) from error
            raise from_call(error) from error
        except asyncio.CancelledError:
            # Also what gRPC raises where the connection was closed and nobody has cancelled us.
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise WorkerLostError(self.address) from None

    def _loss(self, error: aio.AioRpcError) -> Loss | None:
        """What an error of a run says of the worker; None if the error is the run's own."""
        # What servers say that stop: of runs that they wait no longer for, and of those that come
        # in this moment. That may be heard before it is heard that the worker drains.
        if error.code() is StatusCode.CANCELLED:
            return Loss.DRAINING
        if error.code() is not StatusCode.UNAVAILABLE:
            return None
        if self._draining or reason_of(error) == StoppingError.reason:
            return Loss.DRAINING
        return Loss.LOST

    async def close(self) -> None:
        """Closes the connection."""
        await self._channel.close()


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
    """Waits for what a worker says next.

    The time is told in short pieces, so that a pause of this process, after which the worker's
    words lie there unread, is not taken for the worker's.

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
