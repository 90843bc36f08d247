"""Running the requests of routers on the engine, up to the events that routers get."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from functools import partial

from shaperouter_service.decoding import Aligned
from shaperouter_service.errors import (
    DeadlinePassedError,
    ModelUnloadingError,
    OtherRevisionError,
    UnknownModelError,
)
from shaperouter_service.generation.run_events import (
    AlignedTokens,
    FinishReason,
    Isolated,
    NewTokens,
    PromptLogprobs,
    RunCompletion,
    RunEvent,
    Stalled,
)
from shaperouter_service.generation.run_request import RunRequest
from shaperouter_service.rpc.deadlines import WORKER_MARGINS, seconds_to_wait
from shaperouter_service.speech.transcription.alignment import token_positions
from shaperouter_service.system.fair_thread import FairThread
from shaperouter_service.worker.constraints import forced_tokens
from shaperouter_service.worker.engine import Engine
from shaperouter_service.worker.run import Ended, Event, Failed, Run
from shaperouter_service.worker.run_requests import check, make_run
from shaperouter_service.worker.run_trace import RunTrace
from shaperouter_service.worker.token_coalescer import TokenCoalescer


class Runner:
    """Runs requests on an engine. Only the event loop may use it."""

    def __init__(self, engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
        """Takes the engine, and the loop that its events go to."""
        self._engine = engine
        self._inbox = _Inbox(loop)
        # One large grammar takes a second. Its client's next one waits for those of other clients.
        self._grammars = FairThread("grammars", limit=None, low_priority=False)

    async def run(
        self, request: RunRequest, seconds_left: float | None, send: Callable[[RunEvent], None]
    ) -> None:
        """Runs a request to its end; cancelling this frees its slot at the next chunk boundary.

        Args:
            request: The run.
            seconds_left: Seconds until the deadline, if there is one.
            send: Called with each event of the run.

        Raises:
            DeadlinePassedError: The deadline is about to pass.
            ServiceError: The request is refused, or has failed.
        """
        engine = self._engine
        model = engine.model(request.model)
        if request.revision not in ("", model.revision):
            raise OtherRevisionError(request.model, request.revision, model.revision)
        check(request, model)
        until = None
        if seconds_left is not None:
            seconds = seconds_to_wait(seconds_left, WORKER_MARGINS)
            until = asyncio.get_running_loop().time() + seconds
        events: asyncio.Queue[Event] = asyncio.Queue()
        coalescer = TokenCoalescer(request.tokens_interval_seconds)
        run = make_run(request, model, partial(_emit, coalescer, partial(self._inbox.put, events)))
        if request.options["stop"]:
            # In a thread, because the tokenizer is loaded on first use.
            run.stop_tokens = await asyncio.to_thread(
                engine.vocabularies.stop_tokens,
                request.model,
                model.vocab_size,
                request.options["stop"],
                continues_text=request.continues_text,
            )
        if request.grammar:
            skipped = forced_tokens(run)
            run.constraint = await self._grammars.run(
                request.client,
                len(request.grammar),
                partial(
                    engine.vocabularies.constraint,
                    request.model,
                    model.vocab_size,
                    request.grammar,
                    eos_token_ids=request.options["eos_token_ids"],
                    generated=request.generated_token_ids[skipped:],
                ),
            )
            if run.constraint.is_complete:
                # The worker that generated the last token was lost before it reported the end.
                send(RunCompletion(finish_reason=FinishReason.STOP))
                return
        try:
            engine.submit(run, request.model)
        except UnknownModelError:
            # It was freed while the request waited for the vocabulary.
            raise ModelUnloadingError(request.model) from None
        trace = RunTrace(run, request.model)
        error = ""
        try:
            async with asyncio.timeout_at(until):
                end = await _relay(events, trace, send)
            if isinstance(end, Failed):
                error = str(end.error)
                raise end.error
            send(await _completion(request, run, end))
        except TimeoutError:
            error = engine.waited_for(run)
            raise DeadlinePassedError(request.model, error) from None
        finally:
            engine.cancel(run, request.model)
            trace.end(error)


class _Inbox:
    """Brings events from the device thread to the event loop, which a chunk wakes once."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Starts empty."""
        self._loop = loop
        self._waiting: deque[tuple[asyncio.Queue[Event], Event]] = deque()
        self._is_awake = False

    def put(self, queue: asyncio.Queue[Event], event: Event) -> None:
        """Puts an event into a queue of the loop; may be called from any thread."""
        self._waiting.append((queue, event))
        if not self._is_awake:
            self._is_awake = True
            # The loop has ended if the worker is being stopped, and so has the caller.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        # Before the events are taken: one that comes later wakes the loop again.
        self._is_awake = False
        while self._waiting:
            queue, event = self._waiting.popleft()
            queue.put_nowait(event)


def _emit(coalescer: TokenCoalescer, put: Callable[[Event], None], event: Event) -> None:
    """Passes on an event of the device thread, and tokens only as often as they are wanted."""
    if isinstance(event, NewTokens):
        if tokens := coalescer.add(event):
            put(tokens)
        return
    if tokens := coalescer.flush():
        put(tokens)
    put(event)


async def _relay(
    events: asyncio.Queue[Event], trace: RunTrace, send: Callable[[RunEvent], None]
) -> Ended | Failed:
    """Sends a run's events until its end, which is returned."""
    while True:
        event = await events.get()
        trace.note(event)
        match event:
            case NewTokens() | Stalled() | Isolated() | PromptLogprobs():
                send(event)
            case Ended() | Failed():
                return event


async def _completion(request: RunRequest, run: Run, end: Ended) -> RunCompletion:
    aligned = None
    if end.aligned is not None:
        # In a thread, because it takes as long as several decoding steps.
        aligned = await asyncio.to_thread(_aligned, request, end.aligned)
    return RunCompletion(
        finish_reason=end.reason,
        timings=run.timings.durations(),
        input_usage=run.input_usage,
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
