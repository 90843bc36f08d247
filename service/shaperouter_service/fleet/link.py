"""The connection to one worker: its Watch stream, and runs."""

import asyncio
from collections.abc import AsyncGenerator, Callable

import structlog
from grpc import StatusCode, aio

from shaperouter.v1 import worker_pb2, worker_pb2_grpc
from shaperouter_service.errors import WorkerLostError
from shaperouter_service.rpc.status import from_call

log = structlog.get_logger(__name__)

# Seconds between attempts to watch a worker that does not answer.
RETRY_INTERVAL = 0.1

# Seconds a worker has to answer a wish, which costs it next to nothing.
WANT_TIMEOUT = 10.0

_CHANNEL_OPTIONS = [
    # A worker that comes back is found within a moment, not after the default of up to 2 minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 300),
    ("grpc.enable_http_proxy", 0),
    # Snapshots of many graphs; workers are trusted.
    ("grpc.max_receive_message_length", -1),
]


class WorkerLink:
    """A worker at an address. Belongs to the event loop.

    Attributes:
        address: Where it listens.
        running: Runs under way through this link.
    """

    def __init__(
        self,
        address: str,
        *,
        on_snapshot: Callable[["WorkerLink", worker_pb2.WatchResponse], None],
        on_lost: Callable[["WorkerLink"], None],
    ) -> None:
        """Prepares the connection; `watch` makes it.

        Args:
            address: Of the worker, as gRPC writes it.
            on_snapshot: Told each snapshot.
            on_lost: Told when the worker stops answering.
        """
        self.address = address
        self.running = 0
        self._on_snapshot = on_snapshot
        self._on_lost = on_lost
        self._channel = aio.insecure_channel(address, _CHANNEL_OPTIONS)
        self._stub = worker_pb2_grpc.WorkerServiceStub(self._channel)

    async def watch(self) -> None:
        """Follows the worker's state until cancelled, through any number of its lives."""
        while True:
            try:
                call = self._stub.Watch(worker_pb2.WatchRequest(), wait_for_ready=True)
                async for snapshot in call:
                    self._on_snapshot(self, snapshot)
            except aio.AioRpcError as error:
                log.warning("worker lost", address=self.address, reason=error.details())
            # What one worker says must not end the watching, and so blind the router for good.
            except Exception:
                log.exception("worker not understood", address=self.address)
            self._on_lost(self)
            await asyncio.sleep(RETRY_INTERVAL)

    async def run(
        self, request: worker_pb2.RunRequest, seconds_left: float | None
    ) -> AsyncGenerator[worker_pb2.RunResponse, None]:
        """Runs a request on the worker; closing the iterator early cancels it.

        Args:
            request: What to run.
            seconds_left: Until the deadline, if there is one.

        Raises:
            WorkerLostError: The worker is gone.
            RelayedError: It refused.
        """
        call = self._stub.Run(request, timeout=seconds_left)
        self.running += 1
        try:
            async for response in call:
                yield response
        except aio.AioRpcError as error:
            if error.code() is StatusCode.UNAVAILABLE:
                raise WorkerLostError(self.address) from error
            raise from_call(error) from error
        finally:
            self.running -= 1
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

    async def close(self) -> None:
        """Closes the connection."""
        await self._channel.close()
