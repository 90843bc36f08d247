"""Transcription: turns a recording into windows, and what they say into segments."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from functools import partial

from shaperouter_service.errors import InvalidRequestError
from shaperouter_service.fleet import Fleet
from shaperouter_service.generation.run_events import RunTimings, Stalled
from shaperouter_service.generation.transcription import (
    Language,
    TranscriptionCompletion,
    TranscriptionEvent,
    TranscriptionRequest,
)
from shaperouter_service.routing.deployments import public_name
from shaperouter_service.routing.served_model import ServedModel
from shaperouter_service.serving.call import Call
from shaperouter_service.serving.fair_memory import FairMemory, Share
from shaperouter_service.serving.generation.completion import graph_uses
from shaperouter_service.serving.merging import merged
from shaperouter_service.serving.model_choice import ModelChoice
from shaperouter_service.serving.models import transcribes, wrong_model
from shaperouter_service.serving.request_record import RequestRecord, RequestRecorder
from shaperouter_service.serving.tokenizers import taking_turns, with_tokenizer
from shaperouter_service.serving.transcription.fleet_decoder import FleetDecoder
from shaperouter_service.serving.transcription.incoming import Incoming
from shaperouter_service.serving.transcription.loop import Take, transcribe
from shaperouter_service.serving.transcription.options import (
    Transcribing,
    initial_prompt_violations,
    resolve_transcription,
    special_token_violations,
)
from shaperouter_service.serving.transcription.whole_recordings import ClientDecoder, WholeRecording
from shaperouter_service.speech.audio.declared import decode_audio
from shaperouter_service.speech.audio.recording import Recording
from shaperouter_service.speech.transcription import language_names
from shaperouter_service.system.fair_thread import FairThread
from shaperouter_service.telemetry.transcription import TranscriptionMetrics
from shaperouter_service.text import Tokenizer, TokenizerThreads


class TranscriptionService:
    """Transcribes recordings on a fleet. Only the event loop may use it.

    Attributes:
        memory: Memory of all recordings, for doors that receive a recording before they know how
            to transcribe it.
    """

    def __init__(
        self,
        fleet: Fleet,
        choice: ModelChoice,
        tokenizers: Mapping[str, Tokenizer | None],
        threads: TokenizerThreads,
        recorder: RequestRecorder,
        *,
        metrics: TranscriptionMetrics,
        memory: FairMemory,
    ) -> None:
        """Serves requests by running them on a fleet.

        Args:
            fleet: The workers.
            choice: Chooses the models of requests.
            tokenizers: The tokenizer of each model; None if the checkpoint has none.
            threads: The threads that tokenize texts.
            recorder: Makes the records of requests.
            metrics: Metrics of transcribed audio.
            memory: Memory of all recordings.
        """
        self._fleet = fleet
        self._choice = choice
        self._tokenizers = tokenizers
        self._threads = threads
        self._recorder = recorder
        self._metrics = metrics
        self.memory = memory
        # Each waiting call holds one block, and the number of calls is limited.
        self._decoding = FairThread("decode", limit=None, low_priority=True)

    async def transcribe(
        self,
        request: TranscriptionRequest,
        rest: AsyncIterator[bytes] | None,
        call: Call,
        *,
        share: Share | None = None,
    ) -> AsyncGenerator[TranscriptionEvent, None]:
        """Yields all events of a transcription; closing the generator cancels its runs.

        Args:
            request: How to transcribe, and the recording or its first piece.
            rest: The other pieces, as they arrive; None if the recording is complete.
            call: The call.
            share: The memory that the recording has already; None to give it some.

        Raises:
            ServiceError: The request is invalid, or cannot be served.
        """
        with self._recorder.record(call) as record:
            async with contextlib.AsyncExitStack() as stack:
                chosen = self._choice.chosen(
                    request.model, call, record, serves=transcribes, does="transcribe recordings"
                )
                model = await stack.enter_async_context(chosen)
                transcribing = await self._prepare(request, model, record, call)
                settings = transcribing.settings
                recording = Recording(
                    bands=settings.mel_bands, window_frames=settings.window_frames
                )
                decoder = ClientDecoder(self._decoding, transcribing.client)
                if share is None:
                    share = stack.enter_context(self.memory.share(transcribing.client))
                if rest is None:
                    decode = partial(decode_audio, request.audio, request.content)
                    whole = WholeRecording(recording, decode, len(request.content), decoder, share)
                    take: Take = whole.take
                else:
                    incoming = Incoming(recording, request.audio, request.content, decoder, share)
                    await stack.enter_async_context(incoming.reading(rest))
                    take = incoming.take
                events = self._transcribe(transcribing, recording, take, record)
                await stack.enter_async_context(contextlib.aclosing(events))
                async for event in events:
                    yield event

    async def _prepare(
        self,
        request: TranscriptionRequest,
        model: ServedModel,
        record: RequestRecord,
        call: Call,
    ) -> Transcribing:
        """Validates a request and resolves every default.

        Raises:
            InvalidRequestError: It is invalid.
            TextQueueFullError: Too much text is already waiting to be tokenized.
        """
        tokenizer = self._tokenizers[model.name]
        settings, options = model.transcripts, request.options
        if settings is None:
            raise wrong_model(model, "transcribes recordings")
        if tokenizer is None:
            description = f"must be a model with a tokenizer, got {model.name}, which has none"
            raise InvalidRequestError.of("model", description)
        model = with_tokenizer(model, tokenizer)
        prompt, prompt_tokens = options.get("initial_prompt", "").strip(), list[int]()
        violations = list(initial_prompt_violations(model, prompt))
        if prompt and not violations:
            with taking_turns(tokenizer, self._threads, call.client, record) as lent:
                # Previous text begins with a space, too.
                prompt_tokens = await lent.encode_plain(" " + prompt)
            violations += special_token_violations(
                prompt_tokens, settings.tokens, tokenizer.token_text
            )
        resolved = resolve_transcription(
            options,
            settings.tokens,
            names=await asyncio.to_thread(language_names),
            initial_prompt=prompt_tokens,
            violations=violations,
            max_beams=model.max_beams,
            step_seconds=request.step_seconds,
        )
        return Transcribing(
            request_id=call.request_id,
            client=call.client,
            model=model.name,
            settings=settings,
            max_length=model.max_length,
            resolved=resolved,
            decode=tokenizer.decode,
            deadline=call.deadline,
        )

    async def _transcribe(
        self,
        transcribing: Transcribing,
        recording: Recording,
        take: Take,
        record: RequestRecord,
    ) -> AsyncGenerator[TranscriptionEvent, None]:
        """Transcribes a recording, and reports stalls as they happen."""
        stalls: asyncio.Queue[Stalled | None] = asyncio.Queue()
        decoder = FleetDecoder(self._fleet, transcribing, record, on_stall=stalls.put_nowait)
        language = Language(code="", probability=0.0)

        async def transcribed() -> AsyncGenerator[TranscriptionEvent, None]:
            try:
                events = transcribe(recording, transcribing, decoder, take)
                async with contextlib.aclosing(events):
                    async for event in events:
                        yield event
            finally:
                stalls.put_nowait(None)

        async def stalled() -> AsyncGenerator[TranscriptionEvent, None]:
            while (stall := await stalls.get()) is not None:
                yield stall

        # Of events that are ready together, a stall comes before what it delayed.
        async with contextlib.aclosing(merged([stalled(), transcribed()])) as events:
            async for _, event in events:
                if isinstance(event, Language):
                    language = event
                yield event
        self._metrics.ended(public_name(transcribing.model), recording.seconds, decoder.seconds)
        uses = graph_uses(decoder.accounts)
        queue_seconds = sum(account.timings.queue_seconds for account in decoder.accounts)
        record.completed(
            worker=record.worker, timings=RunTimings(queue_seconds=queue_seconds), graphs=uses
        )
        yield TranscriptionCompletion(
            request_id=transcribing.request_id,
            model=public_name(transcribing.model),
            revision=record.revision,
            language=language,
            audio_seconds=recording.seconds,
            total_seconds=record.total_seconds,
            seed=transcribing.resolved.seed,
            graphs=uses,
        )
