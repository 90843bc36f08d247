"""Transcriptions over gRPC: whole recordings, streams, and what is wrong with either."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import numpy as np
from grpc import StatusCode, aio

from harness.router import PATIENCE
from harness.transcripts import END, TOKENS, transcript
from shaperouter.v1 import transcription_pb2, transcription_pb2_grpc, worker_pb2
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.speech.transcription import TranscriptSettings
from shaperouter_service.wire.models import ladders_to_message, transcript_settings_to_message

if TYPE_CHECKING:
    from harness.fake_worker import FakeWorker
    from harness.router import Play, Router
    from shaperouter_service.text import Tokenizer

SETTINGS = TranscriptSettings(
    tokens=TOKENS,
    suppressed=(),
    begin_suppressed=(),
    last_initial_timestamp=TOKENS.first_timestamp + 50,
    mel_bands=80,
    window_frames=3000,
)
AUDIO = transcription_pb2.Audio(
    format=transcription_pb2.AUDIO_FORMAT_PCM_S16LE,
    sample_rate=16_000,
    content=(3000 * np.sin(np.arange(16_000) / 7)).astype("<i2").tobytes(),
)
OPTIONS = transcription_pb2.TranscriptionOptions(language="en", seed=7, temperatures=[0.0])


async def transcribes(worker: FakeWorker) -> None:
    """Has a worker's model transcribe every window to one segment."""
    (model,) = worker.models
    model.transcripts.CopyFrom(transcript_settings_to_message(SETTINGS))
    model.vocab_size, model.max_length, model.max_source_length = 2000, 64, 1500
    ladders = Ladders.default(
        max_length=64,
        slots=4,
        prefill_piece=64,
        max_source_length=1500,
        has_whole_source=True,
        has_transcript=True,
    )
    model.ladders.CopyFrom(ladders_to_message(ladders))
    end = worker_pb2.RunCompletion(finish_reason=1, no_speech_probability=0.25)
    worker.script = [
        worker.stall(),
        worker.tokens(*transcript(0.0, " hello", 1.0), END),
        worker_pb2.RunResponse(completion=end),
    ]
    await worker.change()


def service(router: Router) -> Any:
    return transcription_pb2_grpc.TranscriptionServiceStub(router.channel)


async def loaded(router: Router, worker: FakeWorker) -> Any:
    """The service, once the router knows that the model transcribes."""
    await transcribes(worker)
    stub = service(router)
    request = transcription_pb2.TranscribeRequest(audio=AUDIO, options=OPTIONS)
    while True:
        try:
            await stub.Transcribe(request, timeout=PATIENCE)
        except aio.AioRpcError as error:
            if error.code() is not StatusCode.INVALID_ARGUMENT:
                raise
        else:
            return stub


def test_a_recording_is_transcribed_whole_and_in_pieces(play: Play, tokenizer: Tokenizer) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        stub = await loaded(router, worker)
        request = transcription_pb2.TranscribeRequest(audio=AUDIO, options=OPTIONS)
        whole = await stub.Transcribe(request, timeout=PATIENCE)
        # The text of these tokens in the tokenizer of these tests.
        assert whole.text == tokenizer.decode(transcript(" hello"))
        (segment,) = whole.segments
        assert (segment.start_seconds, segment.end_seconds) == (0.0, 1.0)
        assert segment.no_speech_probability == 0.25
        completion = whole.completion
        assert (completion.language.code, completion.seed) == ("en", 7)
        assert (completion.model, completion.audio_seconds) == ("tiny", 1.0)

        async def messages() -> AsyncIterator[transcription_pb2.TranscribeStreamRequest]:
            start = transcription_pb2.TranscribeStreamStart(audio=AUDIO, options=OPTIONS)
            content, start.audio.content = start.audio.content, b""
            yield transcription_pb2.TranscribeStreamRequest(start=start)
            for at in range(0, len(content), 1000):
                yield transcription_pb2.TranscribeStreamRequest(content=content[at : at + 1000])

        events = [event async for event in stub.TranscribeStream(messages(), timeout=PATIENCE)]
        kinds = [event.WhichOneof("event") for event in events]
        assert kinds == ["language", "stall", "segment", "progress", "completion"]
        assert events[2].segment == segment
        assert router.metric("audio_seconds_total", model="tiny") >= 2.0

    play(scenario)


def test_all_that_is_wrong_with_a_transcription_is_named(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        stub = await loaded(router, worker)
        options = transcription_pb2.TranscriptionOptions(num_beams=99, task=9)
        request = transcription_pb2.TranscribeRequest(audio=AUDIO, options=options)
        error = await router.error(stub.Transcribe(request, timeout=PATIENCE))
        assert "options.num_beams" in (error.details() or "")
        assert "options.task: must be one of transcribe" in str(error.details())
        request = transcription_pb2.TranscribeRequest(
            audio=transcription_pb2.Audio(content=b"x", format=99), options=OPTIONS
        )
        error = await router.error(stub.Transcribe(request, timeout=PATIENCE))
        assert "audio.format: must be one of wav" in str(error.details())

    play(scenario)
