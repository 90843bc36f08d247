"""The worker's gRPC server."""

import asyncio
import contextlib
import dataclasses
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

from grpc import aio

from shaperouter.v1 import worker_pb2, worker_pb2_grpc
from shaperouter_service.routing.snapshots import Snapshot
from shaperouter_service.rpc.heartbeat import HEARTBEAT
from shaperouter_service.system.background import survive_errors
from shaperouter_service.system.drain import Drain
from shaperouter_service.telemetry import tracing
from shaperouter_service.wire.calls import (
    ISOLATED_KEY,
    worker_call_from_message,
    worker_result_to_message,
)
from shaperouter_service.wire.deployments import deployments_to_message, orders_from_message
from shaperouter_service.wire.run_events import run_event_to_message
from shaperouter_service.wire.run_requests import run_request_from_message
from shaperouter_service.wire.signatures import signature_from_message, signature_to_message
from shaperouter_service.wire.snapshots import SnapshotWriter
from shaperouter_service.worker.call_runner import CallRunner
from shaperouter_service.worker.engine import Engine
from shaperouter_service.worker.repository import ModelRepository
from shaperouter_service.worker.run_stream import RunStreams
from shaperouter_service.worker.runner import Runner

# Snapshots are sent at most this often, in seconds: fresh enough for people and for routing. The
# end of the warm-up and of watching are sent at once.
WATCH_INTERVAL = 0.2


class _Watcher:
    """What wakes one watcher."""

    def __init__(self) -> None:
        self.changed, self.is_urgent = asyncio.Event(), asyncio.Event()

    def wake(self, *, at_once: bool) -> None:
        self.changed.set()
        if at_once:
            self.is_urgent.set()

    def clear(self) -> None:
        self.changed.clear()
        self.is_urgent.clear()

    async def wait(self) -> None:
        """Waits for the end of the interval and for a change, or only for an urgent one."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.is_urgent.wait(), WATCH_INTERVAL)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.changed.wait(), HEARTBEAT)


class Changes:
    """Notifies any number of watchers of changes, from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wakes watchers on an event loop."""
        self._loop = loop
        self._watchers: set[_Watcher] = set()
        self._closed = False
        # Whether all watchers were woken since the last one of them looked.
        self._notified = False

    def notify(self, *, at_once: bool = False) -> None:
        """Wakes every watcher; may be called from any thread, also after the loop's end.

        It is called after each chunk, so it leaves the loop alone until a watcher has looked.

        Args:
            at_once: Whether watchers see it without waiting for the end of `WATCH_INTERVAL`.
        """
        if self._notified and not at_once:
            return
        self._notified = True
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(lambda: self._wake_all(at_once=at_once))

    def close(self) -> None:
        """Ends the watching of routers, so that they send no more runs."""
        self._closed = True
        self._wake_all(at_once=True)

    def _wake_all(self, *, at_once: bool) -> None:
        for watcher in self._watchers:
            watcher.wake(at_once=at_once)

    async def watch(self, *, until_closed: bool = True) -> AsyncIterator[None]:
        """Yields at once and after changes; see `WATCH_INTERVAL` and `HEARTBEAT`.

        Args:
            until_closed: Whether to stop after `close`. Otherwise it stops when the caller does.
        """
        watcher = _Watcher()
        self._watchers.add(watcher)
        try:
            while not (until_closed and self._closed):
                watcher.clear()
                self._notified = False
                yield
                await watcher.wait()
        finally:
            self._watchers.discard(watcher)


SERVICE = worker_pb2.DESCRIPTOR.services_by_name["WorkerService"]


class WorkerServicer(worker_pb2_grpc.WorkerServiceServicer):
    """See worker.proto."""

    def __init__(
        self,
        engine: Engine,
        repository: ModelRepository,
        changes: Changes,
        drain: Drain,
        name: str,
    ) -> None:
        """Serves an engine.

        Args:
            engine: The worker's models, lanes and graphs.
            repository: Loads and frees models.
            changes: The engine's changes.
            drain: Counts runs and calls, and refuses new ones once it has begun.
            name: Name of the worker, stable over restarts.
        """
        self._engine = engine
        self._repository = repository
        self._runner = Runner(engine, asyncio.get_running_loop())
        self._streams = RunStreams(self._run, drain)
        self._call_runner = CallRunner(engine, asyncio.get_running_loop())
        self._drain = drain
        self._changes = changes
        self._name = name
        self._incarnation = uuid.uuid4().hex
        self._writer = SnapshotWriter()

    def add_to(self, server: aio.Server) -> None:
        """Adds the service to a server."""
        worker_pb2_grpc.add_WorkerServiceServicer_to_server(self, server)

    def drain(self) -> None:
        """Ends the streams of runs once their runs have ended; new runs are refused."""
        self._streams.end_when_idle()

    async def Runs(  # noqa: N802 (gRPC's name)
        self, request_iterator: AsyncIterator[worker_pb2.RunsRequest], context: Any
    ) -> AsyncIterator[worker_pb2.RunsResponse]:
        """Serves the runs of a router; ending the call early frees their slots."""
        async with contextlib.aclosing(self._streams.responses(request_iterator)) as responses:
            async for response in responses:
                yield response

    async def Call(  # noqa: N802 (gRPC's name)
        self, request: worker_pb2.CallRequest, context: Any
    ) -> worker_pb2.CallResponse:
        """Computes one call; cancelling it drops it unless it is being computed."""
        with self._drain.admitted():
            result = await self._call_runner.call(
                worker_call_from_message(request),
                context.time_remaining(),
                lambda: context.send_initial_metadata(((ISOLATED_KEY, "true"),)),
            )
        return worker_result_to_message(result)

    async def _run(
        self, start: worker_pb2.RunStart, send: Callable[[worker_pb2.RunResponse], None]
    ) -> None:
        tracing.receive(SERVICE.full_name, start.trace_context.items())
        await self._runner.run(
            run_request_from_message(start.request),
            start.timeout_seconds if start.HasField("timeout_seconds") else None,
            lambda event: send(run_event_to_message(event)),
        )

    async def Watch(  # noqa: N802 (gRPC's name)
        self, request: worker_pb2.WatchRequest, context: Any
    ) -> AsyncIterator[worker_pb2.WatchResponse]:
        """Sends the worker's state at once and after changes."""
        # A router of an older version does not say who it is.
        watched = self._repository.watched_by(request.router)
        with watched if request.router else contextlib.nullcontext():
            async for snapshot in self.snapshots():
                yield self._writer.write(snapshot)

    async def Want(  # noqa: N802 (gRPC's name)
        self, request: worker_pb2.WantRequest, context: Any
    ) -> worker_pb2.WantResponse:
        """Requests graphs in the background."""
        refused = self._engine.request_compile(map(signature_from_message, request.signatures))
        return worker_pb2.WantResponse(
            refused=[
                worker_pb2.RefusedGraph(signature=signature_to_message(signature), reason=reason)
                for signature, reason in refused.items()
            ]
        )

    async def Deploy(  # noqa: N802 (gRPC's name)
        self, request: worker_pb2.DeployRequest, context: Any
    ) -> worker_pb2.DeployResponse:
        """Takes a router's orders about models, and answers with all that are known."""
        self._repository.order(orders_from_message(request))
        self._changes.notify()
        return deployments_to_message(self._repository.deployments)

    @property
    def settled(self) -> bool:
        """Whether the worker has all models that routers have ordered; see `ModelRepository`."""
        return self._repository.settled

    async def follow_deployments(self) -> None:
        """Loads and frees models as routers order, until the worker drains."""
        async for _ in self._changes.watch():
            with survive_errors("following deployments"):
                await self._repository.follow()

    async def snapshots(self, *, until_drain: bool = True) -> AsyncGenerator[Snapshot, None]:
        """Yields the worker's state, at once and after changes.

        Args:
            until_drain: Whether it ends when the worker begins to drain.
        """
        async for _ in self._changes.watch(until_closed=until_drain):
            snapshot = self._engine.snapshot(self._name, self._incarnation)
            yield dataclasses.replace(
                snapshot,
                deployments=self._repository.deployments,
                revisions=self._repository.reports(),
            )
