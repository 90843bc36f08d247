"""Transcription of windows on the fleet's workers: each window is a run like any other.

So routing, slots, fairness, losses and deadlines are those of text generation. A run that loses its
worker continues on another after the tokens generated so far; earlier windows are not affected.
"""

import asyncio
import contextlib
import dataclasses
import math
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass

import numpy as np

from shaperouter_service.errors import Code, ServiceError
from shaperouter_service.fleet import Fleet
from shaperouter_service.generation.option import EarlyStopping
from shaperouter_service.generation.resolution import Resolved, neutral_options
from shaperouter_service.generation.run_events import NewTokens, RunCompletion, Stalled
from shaperouter_service.generation.run_request import RunRequest, Sound, TranscriptConstraints
from shaperouter_service.routing.choice import Decision, WorkerOption
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.serving.generation.preparation import UNREAD_INTERVAL, sequence_seed
from shaperouter_service.serving.merging import merged
from shaperouter_service.serving.request_record import RequestRecord
from shaperouter_service.serving.transcription.options import Transcribing
from shaperouter_service.speech.transcription import (
    Alignment,
    Attempt,
    Decoded,
)
from shaperouter_service.speech.transcription.segments import FRAMES_PER_TIMESTAMP
from shaperouter_service.speech.transcription.words import TimedWord, time_words

# Seconds until a refused run is tried again, unless the refusal gives a time.
REFUSED_PAUSE = 0.5


@dataclass(frozen=True, kw_only=True)
class _WindowResult:
    """The result of a run.

    Attributes:
        token_ids: Its tokens, without the end token.
        sum_logprob: Sum of the log-probabilities of these and of the end token.
        completion: Its completion.
    """

    token_ids: Sequence[int]
    sum_logprob: float
    completion: RunCompletion


class FleetDecoder:
    """Transcribes windows of one recording on a fleet; see `loop.WindowDecoder`.

    Attributes:
        accounts: Completions of the runs that have ended.
        seconds: Time spent on them, including waiting.
    """

    def __init__(
        self,
        fleet: Fleet,
        transcribing: Transcribing,
        record: RequestRecord,
        *,
        on_stall: Callable[[Stalled], None],
    ) -> None:
        """Prepares the transcription of one recording.

        Args:
            fleet: The workers.
            transcribing: What all its runs share.
            record: Records every event.
            on_stall: Called when a run waits for a compilation.
        """
        self.accounts: list[RunCompletion] = []
        self.seconds = 0.0
        self._fleet = fleet
        self._shared = transcribing
        self._record = record
        self._on_stall = on_stall
        self._runs = 0

    async def language(self, window: np.ndarray) -> tuple[str, float]:
        """Detects the language: the likeliest of the language tokens; see `WindowDecoder`."""
        tokens = self._shared.settings.tokens
        ids = tokens.languages.values()
        options = neutral_options(max_new_tokens=1)
        run = self._run(window, self._shared.settings.window_frames, [tokens.start], options)
        constraints = TranscriptConstraints(min_first_token=min(ids), max_first_token=max(ids))
        (result,) = await self._run_all([dataclasses.replace(run, constraints=constraints)])
        codes = {token: code for code, token in tokens.languages.items()}
        return codes[result.token_ids[0]], math.exp(result.sum_logprob)

    async def decode(self, window: np.ndarray, attempt: Attempt) -> Sequence[Decoded]:
        """Decodes a window; see `WindowDecoder`."""
        options = self._decoding_options(attempt)
        run = self._run(window, attempt.frames, attempt.prompt, options)
        run = dataclasses.replace(run, constraints=self._constraints(attempt))
        runs = [run]
        if attempt.temperature > 0:
            seeds = (self._seed(attempt, each) for each in range(self._shared.resolved.best_of))
            runs = [dataclasses.replace(run, options={**options, "seed": seed}) for seed in seeds]
        tokens = self._shared.settings.tokens
        return [
            Decoded(
                token_ids=result.token_ids,
                sum_logprob=result.sum_logprob,
                text=self._shared.decode(tokens.text(result.token_ids)),
                no_speech_probability=result.completion.no_speech_probability or 0.0,
            )
            for result in await self._run_all(runs)
        ]

    async def align(self, window: np.ndarray, alignment: Alignment) -> Sequence[TimedWord]:
        """Finds the times of words; see `WindowDecoder`."""
        text = [token for _, token_ids in alignment.words for token in token_ids]
        if not text or alignment.frames < FRAMES_PER_TIMESTAMP:
            return []
        transcript = [*alignment.prefix, *text, self._shared.settings.tokens.end]
        run = self._run(window, alignment.frames, transcript, neutral_options(max_new_tokens=0))
        run = dataclasses.replace(run, align_after=len(alignment.prefix))
        (result,) = await self._run_all([run])
        aligned = result.completion.aligned
        if aligned is None:
            raise TypeError("a whole alignment has the times of its tokens")
        return time_words(alignment.words, positions=aligned.positions, logprobs=aligned.logprobs)

    def _decoding_options(self, attempt: Attempt) -> Resolved:
        settings, resolved = self._shared.settings, self._shared.resolved
        options = neutral_options(
            # Half of the positions, as in openai/whisper: only repeating transcripts are longer.
            max_new_tokens=min(
                self._shared.max_length // 2, self._shared.max_length - len(attempt.prompt)
            ),
            eos_token_ids=[settings.tokens.end],
            # As in openai/whisper: stop as soon as there are as many hypotheses as requested.
            early_stopping=EarlyStopping.FIRST,
            biases=[((token,), -math.inf) for token in settings.suppressed],
            logprobs=0,
        )
        if attempt.temperature > 0:
            return {**options, "do_sample": True, "temperature": attempt.temperature}
        return {**options, "num_beams": resolved.num_beams}

    def _constraints(self, attempt: Attempt) -> TranscriptConstraints:
        settings, tokens = self._shared.settings, self._shared.settings.tokens
        has_timestamps = self._shared.resolved.options.timestamps
        return TranscriptConstraints(
            first_timestamp=tokens.first_timestamp if has_timestamps else None,
            last_initial_timestamp=settings.last_initial_timestamp,
            begin_suppressed=settings.begin_suppressed,
            no_speech=tokens.no_speech,
            no_speech_position=list(attempt.prompt).index(tokens.start),
        )

    def _seed(self, attempt: Attempt, candidate: int) -> int:
        """A separate seed for each sampled transcript."""
        thousandths = round(1000 * attempt.temperature)
        number = (attempt.first_frame * 1001 + thousandths) * 16 + candidate
        return sequence_seed(self._shared.resolved.seed, 1 + number)

    def _run(
        self,
        window: np.ndarray,
        frames: int,
        prompt: Sequence[int],
        options: Resolved,
    ) -> RunRequest:
        return RunRequest(
            request_id=self._shared.request_id,
            model=self._shared.model,
            client=self._shared.client,
            token_ids=prompt,
            sound=Sound(
                samples=window.astype("<f4", copy=False).tobytes(),
                positions=frames // FRAMES_PER_TIMESTAMP,
            ),
            options=options,
            # Only whole transcripts of a window are used.
            tokens_interval_seconds=UNREAD_INTERVAL,
        )

    async def _run_all(self, runs: Sequence[RunRequest]) -> list[_WindowResult]:
        """Runs several runs side by side."""
        started = time.monotonic()
        reported: set[Signature] = set()
        streams = [self._run_to_end(run, reported) for run in runs]
        async with contextlib.aclosing(merged(streams)) as ends:
            results = {index: end async for index, end in ends}
        self.seconds += time.monotonic() - started
        self.accounts += [end.completion for end in results.values()]
        return [results[index] for index in range(len(runs))]

    async def _run_to_end(
        self, run: RunRequest, reported: set[Signature]
    ) -> AsyncGenerator[_WindowResult, None]:
        """Runs a run to its end and returns the result.

        Args:
            run: The run.
            reported: Graphs whose stalls the caller knows about.
        """
        while True:
            try:
                result = await self._attempt(run, reported)
            except ServiceError as error:
                # Overload ends no transcription that has begun; only its deadline does.
                if not self.accounts or error.code is not Code.RESOURCE_EXHAUSTED:
                    raise
                await asyncio.sleep(error.retry_after or REFUSED_PAUSE)
                continue
            if _is_whole(run, result.completion):
                yield result
                return

    async def _attempt(self, run: RunRequest, reported: set[Signature]) -> _WindowResult:
        number = self._runs
        self._runs += 1
        token_ids: list[int] = []
        sum_logprob = 0.0
        completion: RunCompletion | None = None
        events = self._fleet.run(
            run, self._shared.deadline, on_route=self._routed, on_loss=self._record.lost
        )
        async with contextlib.aclosing(events):
            async for worker, event in events:
                self._record.worker = worker
                match event:
                    case Stalled(signature):
                        self._record.stalls(number)
                        if signature not in reported:
                            reported.add(signature)
                            self._on_stall(event)
                    case NewTokens():
                        token_ids += event.token_ids
                        sum_logprob += sum(each.logprob for each in event.logprobs)
                        self._record.tokens(len(event.token_ids), number)
                    case RunCompletion():
                        completion = event
        if completion is None:
            raise RuntimeError("a run ended without a completion")
        if completion.hypotheses:
            (best,) = completion.hypotheses
            token_ids = list(best.token_ids)
            self._record.tokens(len(token_ids), number)
        if token_ids[-1:] == [self._shared.settings.tokens.end]:
            del token_ids[-1]
        if completion.hypotheses:
            # The score is divided by the number of tokens without the end token.
            sum_logprob = completion.hypotheses[0].score * max(1, len(token_ids))
        return _WindowResult(token_ids=token_ids, sum_logprob=sum_logprob, completion=completion)

    def _routed(self, decision: Decision[WorkerOption], revision: str) -> None:
        # A long recording has hundreds of runs; one decision is enough to explain them.
        if not self._record.routes:
            self._record.routed(decision, revision)


def _is_whole(run: RunRequest, completion: RunCompletion) -> bool:
    """Whether the completion has all that was requested, and no part was lost with a worker."""
    if run.align_after is not None:
        return completion.aligned is not None
    asked = run.constraints is not None and run.constraints.no_speech is not None
    return completion.no_speech_probability is not None or not asked
