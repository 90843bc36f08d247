"""The worker's gRPC server."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from grpc import aio

from shaperouter.v1 import worker_pb2, worker_pb2_grpc
from shaperouter_service.decoding import Aligned
from shaperouter_service.errors import DeadlinePassedError
from shaperouter_service.generation.run_events import (
    AlignedTokens,
    Isolated,
    NewTokens,
    RunCompletion,
    RunEvent,
    Stalled,
)
from shaperouter_service.generation.run_request import RunRequest
from shaperouter_service.routing.snapshots import Snapshot
from shaperouter_service.rpc.deadlines import WORKER_MARGINS, seconds_to_wait
from shaperouter_service.rpc.heartbeat import HEARTBEAT
from shaperouter_service.speech.transcription.alignment import token_positions
from shaperouter_service.wire.run_events import run_event_to_message
from shaperouter_service.wire.run_requests import run_request_from_message
from shaperouter_service.wire.signatures import signature_from_message, signature_to_message
from shaperouter_service.wire.snapshots import snapshot_to_message
from shaperouter_service.worker.engine import Engine
from shaperouter_service.worker.requests import check, make_run
from shaperouter_service.worker.run import Ended, Event, Failed, Run
from shaperouter_service.worker.run_trace import RunTrace
from shaperouter_service.worker.token_coalescer import TokenCoalescer

# Snapshots are sent at most this often, in seconds: fresh enough for people and for routing.
WATCH_INTERVAL = 0.2


class Changes:
    """Notifies any number of watchers of changes, from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wakes watchers on an event loop."""
        self._loop = loop
        self._watchers: set[asyncio.Event] = set()
        self._closed = False

    def notify(self) -> None:
        """Wakes every watcher; may be called from any thread, also after the loop's end."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._set_all)

    def close(self) -> None:
        """Ends all watching, so that routers send no more runs."""
        self._closed = True
        self._set_all()

    def _set_all(self) -> None:
        for event in self._watchers:
            event.set()

    async def watch(self) -> AsyncIterator[None]:
        """Yields at once and after changes; see `WATCH_INTERVAL` and `HEARTBEAT`."""
        event = asyncio.Event()
        self._watchers.add(event)
        try:
            while not self._closed:
                event.clear()
                yield
                await asyncio.sleep(WATCH_INTERVAL)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(event.wait(), HEARTBEAT)
        finally:
            self._watchers.discard(event)


SERVICE = worker_pb2.DESCRIPTOR.services_by_name["WorkerService"]


class WorkerServicer(worker_pb2_grpc.WorkerServiceServicer):
    """See worker.proto."""

    def __init__(self, engine: Engine, changes: Changes, name: str) -> None:
        """Serves an engine.

        Args:
            engine: The worker's models, lanes and graphs.
            changes: The engine's changes.
            name: Name of the worker, stable over restarts.
        """
        self._engine = engine
        self._changes = changes
        self._name = name
        self._incarnation = uuid.uuid4().hex

    def add_to(self, server: aio.Server) -> None:
        """Adds the service to a server."""
        worker_pb2_grpc.add_WorkerServiceServicer_to_server(self, server)

    async def Run(  # noqa: N802 (gRPC's name)
        self, request: worker_pb2.RunRequest, context: Any
    ) -> AsyncIterator[worker_pb2.RunResponse]:
        """Runs one request; ending the call early frees its slot."""
        async with contextlib.aclosing(
            self._events(run_request_from_message(request), context)
        ) as events:
            async for event in events:
                yield run_event_to_message(event)

    async def _events(self, request: RunRequest, context: Any) -> AsyncGenerator[RunEvent, None]:
        model = self._engine.model(request.model)
        check(request, model)
        loop = asyncio.get_running_loop()
        events: asyncio.Queue[Event] = asyncio.Queue()

        def emit(event: Event) -> None:
            # The loop has ended if the worker is being stopped, and so has the caller.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(events.put_nowait, event)

        run = make_run(request, model, emit)
        if request.options["stop"]:
            # In a thread, because the tokenizer is loaded on first use.
            run.stop_tokens = await asyncio.to_thread(
                self._engine.vocabularies.stop_tokens,
                request.model,
                model.vocab_size,
                request.options["stop"],
            )
        coalescer = TokenCoalescer(request.tokens_interval_seconds)
        self._engine.submit(run, request.model)
        trace = RunTrace(run, request.model)
        error = ""
        left = context.time_remaining()
        until = None if left is None else loop.time() + seconds_to_wait(left, WORKER_MARGINS)
        try:
            while True:
                try:
                    async with asyncio.timeout_at(until):
                        event = await events.get()
                except TimeoutError:
                    error = self._engine.waited_for(run)
                    raise DeadlinePassedError(request.model, error) from None
                trace.note(event)
                tokens = coalescer.add(event) if isinstance(event, NewTokens) else coalescer.flush()
                if tokens:
                    yield tokens
                match event:
                    case Stalled() | Isolated():
                        yield event
                    case Ended():
                        yield await _completion(request, run, event)
                        return
                    case Failed(failure):
                        error = str(failure)
                        raise failure
        finally:
            self._engine.cancel(run, request.model)
            trace.end(error)

    async def Watch(  # noqa: N802 (gRPC's name)
        self, request: worker_pb2.WatchRequest, context: Any
    ) -> AsyncIterator[worker_pb2.WatchResponse]:
        """Sends the worker's state at once and after changes."""
        async for snapshot in self.snapshots():
            yield snapshot_to_message(snapshot)

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

    async def snapshots(self) -> AsyncIterator[Snapshot]:
        """Yields the worker's state, at once and after changes."""
        async for _ in self._changes.watch():
            yield self._engine.snapshot(self._name, self._incarnation)


async def _completion(request: RunRequest, run: Run, end: Ended) -> RunCompletion:
    aligned = None
    if end.aligned is not None:
        # In a thread, because it takes as long as several decoding steps.
        aligned = await asyncio.to_thread(_aligned, request, end.aligned)
    return RunCompletion(
        finish_reason=end.reason,
        timings=run.timings.durations(),
        padded_prompt_tokens=run.padded_prompt_tokens,
        padded_source_tokens=run.padded_source_tokens,
        graphs=list(run.uses.values()),
        hypotheses=end.hypotheses,
        no_speech_probability=end.no_speech,
        aligned=aligned,
    )


def _aligned(request: RunRequest, aligned: Aligned) -> AlignedTokens:
    """Finds the times of the tokens after the prefix, from attention."""
    if request.align_after is None or request.sound is None:
        raise TypeError("only a sound with a prefix can be aligned")
    # The row of a token is about the next token.
    first = request.align_after - 1
    positions = token_positions(aligned.scores[:, first:-1], request.sound.positions)
    # The last row is about the token after the end token, which does not exist.
    return AlignedTokens(positions.tolist(), aligned.logprobs[first:-1].tolist())
