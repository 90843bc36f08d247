"""The worker's gRPC server."""

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from shaperouter.v1 import generation_pb2, model_pb2, worker_pb2, worker_pb2_grpc
from shaperouter_service.decoding import EarlyStopping, Options
from shaperouter_service.errors import InvalidRequestError, Violation
from shaperouter_service.limits import (
    MAX_BIAS_TOKENS,
    MAX_BIASES,
    MAX_EOS_TOKENS,
    MAX_TOP_LOGPROBS,
)
from shaperouter_service.messages import signature_from_proto, signature_to_proto
from shaperouter_service.rpc.heartbeat import HEARTBEAT
from shaperouter_service.worker.engine import Engine
from shaperouter_service.worker.held_tokens import HeldTokens
from shaperouter_service.worker.run import (
    Ended,
    Event,
    Failed,
    FinishReason,
    NewTokens,
    Run,
    Stalled,
    Timings,
    TokenLogprobs,
)

# Snapshots are sent at most this often, in seconds: fresh enough for people and for routing.
WATCH_INTERVAL = 0.2

_REASONS: Mapping[FinishReason, generation_pb2.FinishReason] = {
    FinishReason.EOS: generation_pb2.FINISH_REASON_EOS,
    FinishReason.LENGTH: generation_pb2.FINISH_REASON_LENGTH,
}
_EARLY_STOPPING: Mapping[generation_pb2.EarlyStopping, EarlyStopping] = {
    generation_pb2.EARLY_STOPPING_UNSPECIFIED: EarlyStopping.HEURISTIC,
    generation_pb2.EARLY_STOPPING_HEURISTIC: EarlyStopping.HEURISTIC,
    generation_pb2.EARLY_STOPPING_FIRST: EarlyStopping.FIRST,
    generation_pb2.EARLY_STOPPING_NEVER: EarlyStopping.NEVER,
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
        _check(request, self._engine.model(request.model))
        loop = asyncio.get_running_loop()
        events: asyncio.Queue[Event] = asyncio.Queue()

        def emit(event: Event) -> None:
            # The loop is gone when the worker is being stopped; so is whoever listened.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(events.put_nowait, event)

        options = request.options
        run = Run(
            request_id=request.request_id,
            client=request.client,
            resumed=request.resumed,
            lane_beams=request.lane_beams,
            token_ids=tuple(request.token_ids),
            source=tuple(request.source_token_ids),
            source_length=len(request.source_token_ids),
            generated_token_ids=tuple(request.generated_token_ids),
            max_new_tokens=options.max_new_tokens,
            eos_token_ids=tuple(options.eos_token_ids),
            num_beams=options.num_beams,
            num_return_sequences=options.num_return_sequences,
            logprobs=options.logprobs if options.HasField("logprobs") else None,
            options=_record(options),
            emit=emit,
            timings=Timings(arrived=time.monotonic()),
        )
        held = HeldTokens(request.tokens_interval_seconds)
        self._engine.submit(run, request.model)
        try:
            while True:
                event = await events.get()
                told = held.add(event) if isinstance(event, NewTokens) else held.release()
                if told:
                    yield worker_pb2.RunResponse(tokens=_tokens(told))
                match event:
                    case Stalled(signature):
                        stall = generation_pb2.Stall(signature=signature_to_proto(signature))
                        yield worker_pb2.RunResponse(stall=stall)
                    case Ended() as end:
                        yield worker_pb2.RunResponse(completion=_completion(run, end))
                        return
                    case Failed(error):
                        raise error
        finally:
            self._engine.cancel(run, request.model)

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


def _check(request: worker_pb2.RunRequest, model: model_pb2.Model) -> None:
    """Refuses what would break the device thread, and with it every other request.

    Routers check the same and more, but by the limits of whichever worker told them last.

    Raises:
        InvalidRequestError: The run does not fit this worker's model.
    """
    ids, options = request.token_ids, request.options
    source = request.source_token_ids
    least_source = 1 if model.max_source_length else 0
    # Without beam search there is one lane.
    widest = model.ladders.lanes[-1].beams if options.num_beams > 1 else 1
    generated = request.generated_token_ids
    last_token = model.vocab_size - 1
    biased = [token for bias in options.biases for token in bias.token_ids]
    bias_lengths = [len(bias.token_ids) for bias in options.biases]
    for field, value, low, high in (
        ("token_ids", len(ids), 1, model.max_length - 1),
        ("token_ids", min(ids, default=0), 0, last_token),
        ("token_ids", max(ids, default=0), 0, last_token),
        ("source_token_ids", len(source), least_source, model.max_source_length),
        ("source_token_ids", min(source, default=0), 0, last_token),
        ("source_token_ids", max(source, default=0), 0, last_token),
        ("options.max_new_tokens", options.max_new_tokens, 1, model.max_length - len(ids)),
        ("options.eos_token_ids", len(options.eos_token_ids), 0, MAX_EOS_TOKENS),
        ("options.num_beams", options.num_beams, 1, model.ladders.lanes[-1].beams),
        ("lane_beams", request.lane_beams or options.num_beams, options.num_beams, widest),
        ("options.num_return_sequences", options.num_return_sequences, 1, options.num_beams),
        ("options.biases", len(options.biases), 0, MAX_BIASES),
        ("options.biases.token_ids", min(bias_lengths, default=1), 1, MAX_BIAS_TOKENS),
        ("options.biases.token_ids", max(bias_lengths, default=1), 1, MAX_BIAS_TOKENS),
        ("options.biases.token_ids", min(biased, default=0), 0, last_token),
        ("options.biases.token_ids", max(biased, default=0), 0, last_token),
        ("options.logprobs", options.logprobs, 0, MAX_TOP_LOGPROBS),
        ("generated_token_ids", len(generated), 0, options.max_new_tokens - 1),
        ("generated_token_ids", min(generated, default=0), 0, last_token),
        ("generated_token_ids", max(generated, default=0), 0, last_token),
    ):
        if not low <= value <= high:
            raise InvalidRequestError(
                Violation(field=field, description=f"must be from {low} to {high}, got {value}")
            )
    if generated and options.num_beams > 1:
        raise InvalidRequestError(
            Violation(
                field="generated_token_ids",
                description=f"must be empty with beam search, got {len(generated)} ids",
            )
        )
    # Whatever the options, a run ends with its first end token: there is nothing after one.
    if ends := set(generated).intersection(options.eos_token_ids):
        raise InvalidRequestError(
            Violation(
                field="generated_token_ids",
                description=f"must have no end token, got {min(ends)}",
            )
        )


def _record(options: worker_pb2.RunOptions) -> Options:
    return Options.of(
        max_new_tokens=options.max_new_tokens,
        min_new_tokens=options.min_new_tokens,
        eos_token_ids=options.eos_token_ids,
        do_sample=options.do_sample,
        seed=options.seed,
        temperature=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
        min_p=options.min_p,
        typical_p=options.typical_p,
        repetition_penalty=options.repetition_penalty,
        no_repeat_ngram_size=options.no_repeat_ngram_size,
        biases=[(bias.token_ids, bias.bias) for bias in options.biases],
        logprobs=options.logprobs if options.HasField("logprobs") else None,
        num_beams=options.num_beams,
        length_penalty=options.length_penalty,
        early_stopping=_EARLY_STOPPING[options.early_stopping],
    )


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
    )
