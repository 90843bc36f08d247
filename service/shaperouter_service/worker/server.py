"""The worker's gRPC server."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from shaperouter.v1 import generation_pb2, worker_pb2, worker_pb2_grpc
from shaperouter_service.decoding import Aligned
from shaperouter_service.errors import DeadlinePassedError
from shaperouter_service.rpc.deadlines import OF_WORKERS, seconds_to_wait
from shaperouter_service.rpc.heartbeat import HEARTBEAT
from shaperouter_service.speech.transcription.alignment import token_positions
from shaperouter_service.wire.messages import signature_from_proto, signature_to_proto
from shaperouter_service.worker.engine import Engine
from shaperouter_service.worker.held_tokens import HeldTokens
from shaperouter_service.worker.requests import check, make_run
from shaperouter_service.worker.run import (
    Ended,
    Event,
    Failed,
    FinishReason,
    Isolated,
    NewTokens,
    Run,
    Stalled,
    TokenLogprobs,
)
from shaperouter_service.worker.run_trace import RunTrace

# Snapshots are sent at most this often, in seconds: fresh enough for people and for routing.
WATCH_INTERVAL = 0.2

_REASONS: Mapping[FinishReason, generation_pb2.FinishReason] = {
    FinishReason.EOS: generation_pb2.FINISH_REASON_EOS,
    FinishReason.LENGTH: generation_pb2.FINISH_REASON_LENGTH,
    FinishReason.STOP: generation_pb2.FINISH_REASON_STOP,
}


class Changes:
    """Tells any number of watchers that something has changed, from any thread."""

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
        """Ends all watching, which tells routers to send nothing more."""
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


class WorkerServicer(worker_pb2_grpc.WorkerServiceServicer):
    """See worker.proto."""

    def __init__(self, engine: Engine, changes: Changes, name: str) -> None:
        """Serves an engine.

        Args:
            engine: What computes.
            changes: Told by the engine.
            name: Of the worker, stable over restarts.
        """
        self._engine = engine
        self._changes = changes
        self._name = name
        self._incarnation = uuid.uuid4().hex

    async def Run(  # noqa: N802 (gRPC's name)
        self, request: worker_pb2.RunRequest, context: Any
    ) -> AsyncIterator[worker_pb2.RunResponse]:
        """Runs one request; ending the call early frees its slot."""
        model = self._engine.model(request.model)
        check(request, model)
        loop = asyncio.get_running_loop()
        events: asyncio.Queue[Event] = asyncio.Queue()

        def emit(event: Event) -> None:
            # The loop is gone when the worker is being stopped; so is whoever listened.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(events.put_nowait, event)

        run = make_run(request, model, emit)
        if request.options.stop:
            # In a thread: the tokenizer is loaded when it is first asked for.
            run.stop_tokens = await asyncio.to_thread(
                self._engine.vocabularies.stop_tokens,
                request.model,
                model.vocab_size,
                request.options.stop,
            )
        held = HeldTokens(request.tokens_interval_seconds)
        self._engine.submit(run, request.model)
        trace = RunTrace(run, request.model)
        error = ""
        left = context.time_remaining()
        until = None if left is None else loop.time() + seconds_to_wait(left, OF_WORKERS)
        try:
            while True:
                try:
                    async with asyncio.timeout_at(until):
                        event = await events.get()
                except TimeoutError:
                    error = self._engine.waited_for(run)
                    raise DeadlinePassedError(request.model, error) from None
                trace.note(event)
                told = held.add(event) if isinstance(event, NewTokens) else held.release()
                if told:
                    yield worker_pb2.RunResponse(tokens=_tokens(told))
                match event:
                    case Stalled(signature):
                        stall = generation_pb2.Stall(signature=signature_to_proto(signature))
                        yield worker_pb2.RunResponse(stall=stall)
                    case Isolated():
                        yield worker_pb2.RunResponse(isolated=worker_pb2.Isolated())
                    case Ended() as end:
                        completion = _completion(run, end)
                        if end.aligned is not None:
                            # In a thread: it takes as long as some steps of decoding.
                            aligned = await asyncio.to_thread(_aligned, request, end.aligned)
                            completion.aligned.CopyFrom(aligned)
                        yield worker_pb2.RunResponse(completion=completion)
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
        """Tells the worker's state, at once and after changes."""
        async for snapshot in self.snapshots():
            yield snapshot

    async def Want(  # noqa: N802 (gRPC's name)
        self, request: worker_pb2.WantRequest, context: Any
    ) -> worker_pb2.WantResponse:
        """Has graphs made in the background."""
        refused = self._engine.want(map(signature_from_proto, request.signatures))
        return worker_pb2.WantResponse(
            refused=[
                worker_pb2.RefusedGraph(signature=signature_to_proto(signature), reason=reason)
                for signature, reason in refused.items()
            ]
        )

    async def snapshots(self) -> AsyncIterator[worker_pb2.WatchResponse]:
        """Yields the worker's state, at once and after changes."""
        async for _ in self._changes.watch():
            yield self._engine.snapshot(self._name, self._incarnation)


def _tokens(tokens: NewTokens) -> worker_pb2.RunTokens:
    return worker_pb2.RunTokens(token_ids=tokens.token_ids, logprobs=_logprobs(tokens.logprobs))


def _logprobs(logprobs: Sequence[TokenLogprobs]) -> list[generation_pb2.TokenLogprobs]:
    return [
        generation_pb2.TokenLogprobs(
            chosen=generation_pb2.TokenLogprob(token_id=one.token_id, logprob=one.logprob),
            top=[
                generation_pb2.TokenLogprob(token_id=token_id, logprob=logprob)
                for token_id, logprob in one.top
            ],
        )
        for one in logprobs
    ]


def _completion(run: Run, end: Ended) -> worker_pb2.RunCompletion:
    timings = run.timings
    return worker_pb2.RunCompletion(
        finish_reason=_REASONS[end.reason],
        padded_prompt_tokens=run.padded_prompt_tokens,
        padded_source_tokens=run.padded_source_tokens,
        queue_seconds=timings.queue_seconds,
        stall_seconds=timings.stall_seconds,
        prefill_seconds=timings.prefill_seconds,
        decode_seconds=timings.decode_seconds,
        graphs=[
            generation_pb2.GraphUse(
                asked=signature_to_proto(use.asked),
                served=signature_to_proto(use.served),
                calls=use.calls,
                device_seconds=use.device_seconds,
            )
            for use in run.uses.values()
        ],
        hypotheses=[
            worker_pb2.Hypothesis(
                token_ids=hypothesis.token_ids,
                finish_reason=_REASONS[hypothesis.reason],
                score=hypothesis.score,
                logprobs=_logprobs(hypothesis.logprobs),
            )
            for hypothesis in end.hypotheses
        ],
        no_speech_probability=end.no_speech,
    )


def _aligned(request: worker_pb2.RunRequest, aligned: Aligned) -> worker_pb2.AlignedTokens:
    """When the tokens behind the prefix were said, from attention."""
    # What is known of a token stands in the row of the one before it.
    first = request.alignment.prefix_tokens - 1
    places = token_positions(aligned.scores[:, first:-1], request.sound.positions)
    # The end token is none that is said.
    return worker_pb2.AlignedTokens(places=places, logprobs=aligned.logprobs[first:-1])
