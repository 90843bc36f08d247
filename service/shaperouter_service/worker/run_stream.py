"""The runs that one router starts over one call; see `WorkerService.Runs`."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable
from typing import TypeAlias

import structlog

from shaperouter.v1 import worker_pb2
from shaperouter_service.errors import (
    DEFECT,
    Code,
    ExhaustedError,
    RelayedError,
    ServiceError,
    StoppingError,
)
from shaperouter_service.rpc.outbox import Outbox
from shaperouter_service.rpc.status import to_status
from shaperouter_service.system.drain import Drain

log = structlog.get_logger(__name__)

# Maximum events of a run that the router has not used. Tokens beyond them wait here, as one event:
# neither side holds many events for a caller that reads slowly, and no other run waits for it.
MAX_UNUSED_EVENTS = 32

Send: TypeAlias = Callable[[worker_pb2.RunResponse], None]
# Runs a request: sends its events, and returns or raises at its end.
Serve: TypeAlias = Callable[[worker_pb2.RunStart, Send], Awaitable[None]]


class RunStreams:
    """All streams of runs of a worker. Only the event loop may use it."""

    def __init__(self, serve: Serve, drain: Drain) -> None:
        """Serves runs.

        Args:
            serve: Runs a request; cancelled if its router cancels it or has gone.
            drain: Counts each run until all of its events are sent.
        """
        self._serve = serve
        self._drain = drain
        self._is_ending = False
        self._streams: set[RunStream] = set()

    async def responses(
        self, requests: AsyncIterable[worker_pb2.RunsRequest]
    ) -> AsyncGenerator[worker_pb2.RunsResponse, None]:
        """Serves one stream until its router ends it, or until it is idle after `end_when_idle`."""
        stream = RunStream(self._serve, self._drain)
        self._streams.add(stream)
        try:
            if self._is_ending:
                stream.end_when_idle()
            async with contextlib.aclosing(stream.responses(requests)) as responses:
                async for response in responses:
                    yield response
        finally:
            self._streams.discard(stream)

    def end_when_idle(self) -> None:
        """Ends each stream once none of its runs is left, so that the server can stop."""
        self._is_ending = True
        for stream in self._streams:
            stream.end_when_idle()


class RunStream:
    """The runs of one router, and the updates to send to it."""

    def __init__(self, serve: Serve, drain: Drain) -> None:
        """Starts without runs; see `RunStreams`."""
        self._serve = serve
        self._drain = drain
        self._outbox = Outbox[worker_pb2.RunUpdate]()
        self._events: dict[int, _RunEvents] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._is_ending = False

    async def responses(
        self, requests: AsyncIterable[worker_pb2.RunsRequest]
    ) -> AsyncGenerator[worker_pb2.RunsResponse, None]:
        """Yields the updates to send; ending the iteration early cancels all runs."""
        reading = asyncio.create_task(self._read(requests))
        try:
            async for updates in self._outbox.batches():
                yield worker_pb2.RunsResponse(updates=updates)
            if reading.done():
                # Raises an error of the requests.
                reading.result()
        finally:
            tasks = [reading, *self._tasks.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def end_when_idle(self) -> None:
        """Ends the stream once no run is left."""
        self._is_ending = True
        if not self._tasks:
            self._outbox.close()

    async def _read(self, requests: AsyncIterable[worker_pb2.RunsRequest]) -> None:
        try:
            async for request in requests:
                for start in request.started:
                    self._start(start)
                for used in request.events_used:
                    if events := self._events.get(used.run_id):
                        events.used(used.events)
                for run_id in request.cancelled_run_ids:
                    if task := self._tasks.get(run_id):
                        task.cancel()
        except BaseException:
            self._outbox.close()
            raise
        self.end_when_idle()

    def _start(self, start: worker_pb2.RunStart) -> None:
        run_id = start.run_id
        events = self._events[run_id] = _RunEvents(run_id, self._outbox)
        task = self._tasks[run_id] = asyncio.create_task(self._run(start, events))
        # Not in the task, which never begins if it is cancelled at once.
        task.add_done_callback(lambda _: self._ended(run_id))

    async def _run(self, start: worker_pb2.RunStart, events: "_RunEvents") -> None:
        try:
            with self._drain.admitted():
                try:
                    await self._serve(start, events.send)
                except ServiceError as error:
                    events.fail(error)
                # The error is the run's own, and must not end the others.
                except Exception as error:
                    log.exception("unexpected exception", request_id=start.request.request_id)
                    events.fail(ExhaustedError.of(error) or RelayedError(Code.INTERNAL, DEFECT))
                await events.all_sent()
        except StoppingError as error:
            events.fail(error)

    def _ended(self, run_id: int) -> None:
        del self._events[run_id], self._tasks[run_id]
        if self._is_ending:
            self.end_when_idle()


class _RunEvents:
    """The updates to send about one run, in order."""

    def __init__(self, run_id: int, outbox: Outbox[worker_pb2.RunUpdate]) -> None:
        """Starts without events."""
        self._run_id = run_id
        self._outbox = outbox
        self._unused = 0
        # Updates that the router is not ready for, and the task that waits until they are sent.
        self._held: list[worker_pb2.RunUpdate] = []
        self._all_sent: asyncio.Future[None] | None = None

    def send(self, event: worker_pb2.RunResponse) -> None:
        """Sends an event as soon as the router is ready for it."""
        last = self._held[-1].event if self._held else None
        if last is not None and event.HasField("tokens") and last.HasField("tokens"):
            last.tokens.MergeFrom(event.tokens)
        else:
            self._put(worker_pb2.RunUpdate(run_id=self._run_id, event=event))

    def fail(self, error: ServiceError) -> None:
        """Sends the error that ended the run."""
        status = to_status(error).SerializeToString()
        self._put(worker_pb2.RunUpdate(run_id=self._run_id, error_status=status))

    def used(self, count: int) -> None:
        """Notes that the router has used events."""
        self._unused -= count
        held, self._held = self._held, []
        for update in held:
            self._put(update)
        if not self._held and self._all_sent is not None and not self._all_sent.done():
            self._all_sent.set_result(None)

    async def all_sent(self) -> None:
        """Waits until nothing is held back."""
        if self._held:
            self._all_sent = asyncio.get_running_loop().create_future()
            await self._all_sent

    def _put(self, update: worker_pb2.RunUpdate) -> None:
        if self._held or self._unused >= MAX_UNUSED_EVENTS:
            self._held.append(update)
            return
        self._unused += 1
        self._outbox.put(update)
