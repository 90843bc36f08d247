"""The call that carries all runs of a router on one worker; see `WorkerService.Runs`."""

import asyncio
import contextlib
import itertools
from collections import deque
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

from google.rpc import status_pb2
from grpc import StatusCode, aio

from shaperouter.v1 import worker_pb2, worker_pb2_grpc
from shaperouter_service.errors import Code, RelayedError
from shaperouter_service.rpc.deadlines import seconds_to_wait
from shaperouter_service.rpc.outbox import Outbox
from shaperouter_service.rpc.status import from_call, from_status

# Events of a run that are used before the worker gets credit for them. A worker sends at most 32
# events without credit.
EVENTS_PER_CREDIT = 16


class RunStream:
    """A call, from its first run until it ends. Only the event loop may use it."""

    def __init__(self, stub: worker_pb2_grpc.WorkerServiceStub) -> None:
        """Begins the call."""
        self._outbox = Outbox[worker_pb2.RunsRequest]()
        self._run_ids = itertools.count(1)
        self._runs: dict[int, StreamedRun] = {}
        self._end: Callable[[], Exception] | None = None
        # The types of the stubs are those of blocking calls.
        runs: Any = stub.Runs
        self._call = runs(self._requests())
        self._reading = asyncio.create_task(self._read())

    @property
    def has_ended(self) -> bool:
        """Whether it can carry no further runs."""
        return self._end is not None

    def start(
        self,
        request: worker_pb2.RunRequest,
        *,
        seconds_left: float | None,
        trace_context: dict[str, str],
    ) -> "StreamedRun":
        """Starts a run, which the caller must close.

        Args:
            request: The run.
            seconds_left: Seconds until the deadline, if there is one.
            trace_context: Metadata of the span that the run belongs to.
        """
        run_id = next(self._run_ids)
        run = self._runs[run_id] = StreamedRun(self, run_id)
        if seconds_left is not None:
            run.expire_after(seconds_to_wait(seconds_left))
        self._outbox.put(
            worker_pb2.RunsRequest(
                started=[
                    worker_pb2.RunStart(
                        run_id=run_id,
                        request=request,
                        timeout_seconds=seconds_left,
                        trace_context=trace_context,
                    )
                ]
            )
        )
        return run

    def end(self, error: Callable[[], Exception]) -> None:
        """Ends the call, unless it has ended.

        Args:
            error: Makes the error that each of its runs ends with.
        """
        if self._end is None:
            self._end = error
            self._call.cancel()
            # If the worker has ended the call, gRPC leaves its task waiting for requests. Python
            # would destroy it some time later, and complain about its generators.
            self._outbox.close()
            for run in self._runs.values():
                run.wake()

    def release(self, run_id: int, *, cancels: bool) -> None:
        """Forgets a run, which the worker cancels unless it has ended."""
        del self._runs[run_id]
        if cancels:
            self._outbox.put(worker_pb2.RunsRequest(cancelled_run_ids=[run_id]))

    def used(self, run_id: int, events: int) -> None:
        """Lets the worker send more events of a run."""
        used = worker_pb2.EventsUsed(run_id=run_id, events=events)
        self._outbox.put(worker_pb2.RunsRequest(events_used=[used]))

    def check(self) -> None:
        """Raises an error if the call has ended."""
        if self._end is not None:
            raise self._end()

    async def _requests(self) -> AsyncIterator[worker_pb2.RunsRequest]:
        async with contextlib.aclosing(self._outbox.batches()) as batches:
            async for batch in batches:
                request, *others = batch
                for other in others:
                    request.MergeFrom(other)
                yield request

    async def _read(self) -> None:
        error = partial(RelayedError, Code.UNAVAILABLE, "the stream of runs broke")
        try:
            async for response in self._call:
                for update in response.updates:
                    # The run may have been cancelled meanwhile.
                    if run := self._runs.get(update.run_id):
                        run.put(update)
            # A worker ends the call only when it drains.
            error = partial(RelayedError, Code.CANCELLED, "the worker ended the stream of runs")
        except aio.AioRpcError as failure:
            # A connection that breaks during a write has the code INTERNAL. A run's own errors are
            # updates, so this is none of them.
            if failure.code() is not StatusCode.INTERNAL:
                error = partial(from_call, failure)
        finally:
            self.end(error)


class StreamedRun:
    """A run of a stream, whose events wait here until they are read."""

    def __init__(self, stream: RunStream, run_id: int) -> None:
        """Starts without events; see `RunStream.start`."""
        self._stream = stream
        self._run_id = run_id
        self._updates: deque[worker_pb2.RunUpdate] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._used = 0
        self._has_ended = False
        self._has_expired = False
        self._expiry: asyncio.TimerHandle | None = None

    def expire_after(self, seconds: float) -> None:
        """Limits the time that the reader waits, by one timer for all of the run's events."""
        self._expiry = asyncio.get_running_loop().call_later(seconds, self._expire)

    async def read(self) -> worker_pb2.RunResponse:
        """Returns the next event. A completion is the last one.

        Raises:
            TimeoutError: The run has expired.
            RelayedError: The run has failed, or the call has ended.
            Exception: The error of `RunStream.end`.
        """
        while not self._updates:
            self._stream.check()
            if self._has_expired:
                raise TimeoutError
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        update = self._updates.popleft()
        if update.HasField("error_status"):
            self._has_ended = True
            raise from_status(status_pb2.Status.FromString(update.error_status))
        if update.event.HasField("completion"):
            self._has_ended = True
            return update.event
        self._used += 1
        if self._used == EVENTS_PER_CREDIT:
            self._stream.used(self._run_id, self._used)
            self._used = 0
        return update.event

    def close(self) -> None:
        """Cancels the run unless it has ended."""
        if self._expiry is not None:
            self._expiry.cancel()
        self._stream.release(self._run_id, cancels=not self._has_ended)

    def put(self, update: worker_pb2.RunUpdate) -> None:
        """Takes an update of the worker."""
        self._updates.append(update)
        self.wake()

    def _expire(self) -> None:
        self._has_expired = True
        self.wake()

    def wake(self) -> None:
        """Lets the reader look again."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
