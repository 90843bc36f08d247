"""Transcriptions and translations of recordings."""

import asyncio
import contextlib
import io
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import replace

from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp

from shaperouter_service.edge.http.calls import while_connected
from shaperouter_service.edge.http.event_stream import Pieces, event_stream
from shaperouter_service.edge.http.forms import Form
from shaperouter_service.edge.http.openai.speech_requests import (
    FILE,
    SpeechRequest,
    declares_samples,
    speech_request,
)
from shaperouter_service.edge.http.openai.transcripts import Transcript, transcript_response
from shaperouter_service.errors import InvalidRequestError
from shaperouter_service.generation.limits import MAX_TEXT_REQUEST_BYTES
from shaperouter_service.generation.transcription import Language, TranscriptionEvent
from shaperouter_service.serving.call import Call
from shaperouter_service.serving.fair_memory import Share
from shaperouter_service.serving.transcription.service import TranscriptionService
from shaperouter_service.speech.audio.limits import MAX_AUDIO_BYTES
from shaperouter_service.speech.transcription import Task

Events = AsyncGenerator[TranscriptionEvent, None]


class Speech:
    """Answers requests about recordings."""

    def __init__(self, service: TranscriptionService) -> None:
        """Takes the core's service."""
        self._service = service

    async def transcriptions(self, request: Request, call: Call) -> ASGIApp:
        """POST /v1/audio/transcriptions."""
        return await self._answer(request, call, Task.TRANSCRIBE)

    async def translations(self, request: Request, call: Call) -> ASGIApp:
        """POST /v1/audio/translations."""
        return await self._answer(request, call, Task.TRANSLATE)

    async def _answer(self, request: Request, call: Call, task: Task) -> ASGIApp:
        form = Form(
            request,
            file=FILE,
            max_file_bytes=MAX_AUDIO_BYTES,
            max_text_bytes=MAX_TEXT_REQUEST_BYTES,
        )
        has_file = await form.read_until_file()
        with contextlib.ExitStack() as held:
            if has_file and declares_samples(form.before):
                asked = speech_request(form.before, task, has_file=True, is_arriving=True)
                events = self._service.transcribe(asked.request, _arriving(form), call)
            else:
                share = held.enter_context(self._service.memory.share(call.client))
                content = await _whole(form, share)
                texts = [*form.before, *form.after]
                asked = speech_request(texts, task, has_file=has_file, is_arriving=False)
                recording = replace(asked.request, content=content)
                events = self._service.transcribe(recording, None, call, share=share)
            if not asked.streams:
                transcript = await while_connected(form.caller, _read(asked, events))
                return transcript_response(transcript, asked)
            answer = await while_connected(form.caller, event_stream(_pieces(asked, events)))
            answer.hold(held.pop_all(), form.caller.receive)
            return answer


async def _whole(form: Form, share: Share) -> bytes:
    """The whole file of a form; empty without one."""
    content = io.BytesIO()
    async for piece in form.file():
        content.write(piece)
        try:
            share.resize(content.tell())
        except InvalidRequestError as error:
            raise InvalidRequestError(
                *(replace(each, field=FILE) for each in error.violations)
            ) from None
    # The same bytes, without a copy.
    return content.getvalue()


async def _arriving(form: Form) -> AsyncIterator[bytes]:
    """The raw samples of a form, as they arrive."""
    try:
        async for piece in form.file():
            yield piece
    except ClientDisconnect:
        # The task that waits for the answer also gets the error, and cancels the transcription.
        await asyncio.get_running_loop().create_future()
    for name, _ in form.after:
        rule = f"must come before {FILE}, whose raw samples are transcribed as they arrive"
        raise InvalidRequestError.of(name, rule)


async def _in_callers_words(asked: SpeechRequest, events: Events) -> Events:
    """The events of a transcription; errors have the caller's names of fields."""
    with asked.fields.callers_words():
        async with contextlib.aclosing(events):
            async for event in events:
                yield event


async def _read(asked: SpeechRequest, events: Events) -> Transcript:
    transcript = Transcript()
    async with contextlib.aclosing(_in_callers_words(asked, events)) as told:
        async for event in told:
            transcript.add(event)
    return transcript


async def _pieces(asked: SpeechRequest, events: Events) -> Pieces:
    """The pieces of a stream; None for an event that has none."""
    transcript = Transcript()
    async with contextlib.aclosing(_in_callers_words(asked, events)) as told:
        async for event in told:
            if text := transcript.add(event):
                yield {"type": "transcript.text.delta", "delta": text}
            elif not isinstance(event, Language):
                # A language that was given is known before the recording has been checked.
                yield None
    yield {"type": "transcript.text.done", "text": transcript.text}
