"""Transcription: turns a recording into windows, and what they say into segments."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from functools import partial
from typing import TypeAlias

from shaperouter.v1 import transcription_pb2
from shaperouter_service.errors import InvalidRequestError, Violation
from shaperouter_service.fleet import Fleet
from shaperouter_service.generation.run_events import RunTimings, Stalled
from shaperouter_service.routing.served_model import ServedModel
from shaperouter_service.serving.call import Call
from shaperouter_service.serving.generation.completion import graph_uses
from shaperouter_service.serving.merging import merged
from shaperouter_service.serving.models import transcribes
from shaperouter_service.serving.request_record import RequestRecord, RequestRecorder
from shaperouter_service.serving.tokenizers import taking_turns, with_tokenizer
from shaperouter_service.serving.transcription.fleet_decoder import FleetDecoder, Transcribing
from shaperouter_service.serving.transcription.incoming import Incoming
from shaperouter_service.serving.transcription.loop import Language, Progress, Take, transcribe
from shaperouter_service.serving.transcription.options import (
    initial_prompt_violations,
    resolve_transcription,
)
from shaperouter_service.serving.transcription.recording_memory import RecordingMemory
from shaperouter_service.serving.transcription.whole_recordings import ClientDecoder, WholeRecording
from shaperouter_service.speech.audio.recording import Recording
from shaperouter_service.speech.transcription import Segment, language_names
from shaperouter_service.system.fair_thread import FairThread
from shaperouter_service.telemetry.transcription import TranscriptionMetrics
from shaperouter_service.text import Tokenizer, TokenizerThreads
from shaperouter_service.wire.recordings import decode_audio
from shaperouter_service.wire.run_events import graph_use_to_message, stall_to_message
from shaperouter_service.wire.transcripts import language_message, progress_message, segment_message

Response = transcription_pb2.TranscribeStreamResponse
StreamRequest = transcription_pb2.TranscribeStreamRequest
Start: TypeAlias = transcription_pb2.TranscribeRequest | transcription_pb2.TranscribeStreamStart


class TranscriptionService:
    """Transcribes recordings on a fleet. Only the event loop may use it."""

    def __init__(
        self,
        fleet: Fleet,
        tokenizers: Mapping[str, Tokenizer | None],
        threads: TokenizerThreads,
        recorder: RequestRecorder,
        metrics: TranscriptionMetrics,
        *,
        memory: RecordingMemory,
    ) -> None:
        """Serves requests by running them on a fleet.

        Args:
            fleet: The workers.
            tokenizers: The tokenizer of each model; None if the checkpoint has none.
            threads: The threads that tokenize texts.
            recorder: Makes the records of requests.
            metrics: Metrics of transcribed audio.
            memory: Memory of all recordings.
        """
        self._fleet = fleet
        self._tokenizers = tokenizers
        self._threads = threads
        self._recorder = recorder
        self._metrics = metrics
        self._memory = memory
        # Each waiting call holds one block, and the number of calls is limited.
        self._decoding = FairThread("decode", limit=None, low_priority=True)

    async def transcribe(
        self, request: Start, rest: AsyncIterator[StreamRequest] | None, call: Call
    ) -> AsyncGenerator[Response, None]:
        """Yields all events of a transcription; closing the generator cancels its runs.

        Args:
            request: How to transcribe, and the recording or its first piece.
            rest: Source of the other pieces; None if there are none.
            call: The call.

        Raises:
            ServiceError: The request is invalid, or cannot be served.
        """
        with self._recorder.record(call) as record:
            name = await self._fleet.resolve(
                request.model, call.deadline, serves=transcribes, call="transcribe recordings"
            )
            record.waits(name)
            model = await self._fleet.model(name, call.deadline)
            transcribing = await self._prepare(request, model, record, call)
            settings = transcribing.settings
            recording = Recording(bands=settings.mel_bands, window_frames=settings.window_frames)
            async with contextlib.AsyncExitStack() as stack:
                content = request.audio.content
                # Otherwise it would keep a copy for as long as the call runs.
                request.audio.ClearField("content")
                decoder = ClientDecoder(self._decoding, transcribing.client)
                share = stack.enter_context(self._memory.share(transcribing.client))
                if rest is None:
                    decode = partial(decode_audio, request.audio, content)
                    whole = WholeRecording(recording, decode, len(content), decoder, share)
                    take: Take = whole.take
                else:
                    incoming = Incoming(recording, request.audio, content, decoder, share)
                    await stack.enter_async_context(incoming.reading(rest))
                    take = incoming.take
                events = self._transcribe(transcribing, recording, take, record)
                await stack.enter_async_context(contextlib.aclosing(events))
                async for event in events:
                    yield event

    async def _prepare(
        self,
        request: Start,
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
            description = (
                f"must be a model that transcribes recordings, got {model.name}, which takes "
                "text: use GenerationService"
            )
            raise InvalidRequestError(Violation(field="model", description=description))
        if tokenizer is None:
            description = f"must be a model with a tokenizer, got {model.name}, which has none"
            raise InvalidRequestError(Violation(field="model", description=description))
        step_seconds = None
        if isinstance(request, transcription_pb2.TranscribeStreamStart):
            step_seconds = request.step_seconds if request.HasField("step_seconds") else None
        model = with_tokenizer(model, tokenizer)
        prompt, prompt_tokens = options.initial_prompt.strip(), list[int]()
        violations = list(initial_prompt_violations(model, prompt))
        if prompt and not violations:
            with taking_turns(tokenizer, self._threads, call.client, record) as lent:
                # Previous text begins with a space, too.
                prompt_tokens = await lent.encode_plain(" " + prompt)
        resolved = resolve_transcription(
            options,
            settings.tokens,
            names=await asyncio.to_thread(language_names),
            initial_prompt=prompt_tokens,
            violations=violations,
            widest_beams=model.ladders.lanes[-1].beams,
            step_seconds=step_seconds,
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
    ) -> AsyncGenerator[Response, None]:
        """Transcribes a recording, and reports stalls as they happen."""
        stalls: asyncio.Queue[Stalled | None] = asyncio.Queue()
        decoder = FleetDecoder(self._fleet, transcribing, record, on_stall=stalls.put_nowait)
        language = transcription_pb2.DetectedLanguage()

        async def transcribed() -> AsyncGenerator[Response, None]:
            try:
                async with contextlib.aclosing(
                    transcribe(
                        recording,
                        transcribing.resolved,
                        decoder,
                        tokens=transcribing.settings.tokens,
                        decode=transcribing.decode,
                        window_frames=transcribing.settings.window_frames,
                        max_length=transcribing.max_length,
                        take=take,
                    )
                ) as events:
                    async for event in events:
                        yield self._told(event, transcribing.model, language)
            finally:
                stalls.put_nowait(None)

        async def stalled() -> AsyncGenerator[Response, None]:
            while (stall := await stalls.get()) is not None:
                yield Response(stall=stall_to_message(stall))

        async with contextlib.aclosing(merged([transcribed(), stalled()])) as events:
            async for _, event in events:
                yield event
        self._metrics.ended(transcribing.model, recording.seconds, decoder.seconds)
        uses = graph_uses(decoder.accounts)
        queue_seconds = sum(account.timings.queue_seconds for account in decoder.accounts)
        record.completed(
            worker=record.worker, timings=RunTimings(queue_seconds=queue_seconds), graphs=uses
        )
        yield Response(
            completion=transcription_pb2.TranscriptionCompletion(
                request_id=transcribing.request_id,
                model=transcribing.model,
                language=language,
                audio_seconds=recording.seconds,
                total_seconds=record.total_seconds,
                device_seconds=sum(use.device_seconds for use in uses),
                seed=transcribing.resolved.seed,
                graphs=map(graph_use_to_message, uses),
            )
        )

    def _told(
        self,
        event: Language | Segment | Progress,
        model: str,
        language: transcription_pb2.DetectedLanguage,
    ) -> Response:
        """The message of an event; keeps the language for the completion."""
        match event:
            case Language():
                language.CopyFrom(language_message(event))
                return Response(language=language)
            case Segment():
                return Response(segment=segment_message(event))
            case Progress():
                return Response(progress=progress_message(event))
