"""Transcriptions over gRPC: whole recordings, streams, and what is wrong with either."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from grpc import StatusCode, aio

from harness.transcribing import RATE, tone, transcribes
from harness.transcripts import transcript
from harness.waiting import TIMEOUT
from shaperouter.v1 import transcription_pb2, transcription_pb2_grpc

if TYPE_CHECKING:
    from harness.fake_worker import FakeWorker
    from harness.router import Play, Router
    from shaperouter_service.text import Tokenizer

AUDIO = transcription_pb2.Audio(
    format=transcription_pb2.AUDIO_FORMAT_PCM_S16LE, sample_rate=RATE, content=tone(1.0).tobytes()
)
OPTIONS = transcription_pb2.TranscriptionOptions(language="en", seed=7, temperatures=[0.0])


def service(router: Router) -> Any:
    return transcription_pb2_grpc.TranscriptionServiceStub(router.channel)


async def loaded(router: Router, worker: FakeWorker) -> Any:
    """The service, once the router knows that the model transcribes."""
    await transcribes(worker)
    stub = service(router)
    request = transcription_pb2.TranscribeRequest(audio=AUDIO, options=OPTIONS)
    while True:
        try:
            await stub.Transcribe(request, timeout=TIMEOUT)
        except aio.AioRpcError as error:
            if error.code() is not StatusCode.INVALID_ARGUMENT:
                raise
        else:
            return stub


def test_a_recording_is_transcribed_whole_and_in_pieces(play: Play, tokenizer: Tokenizer) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        stub = await loaded(router, worker)
        request = transcription_pb2.TranscribeRequest(audio=AUDIO, options=OPTIONS)
        whole = await stub.Transcribe(request, timeout=TIMEOUT)
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

        events = [event async for event in stub.TranscribeStream(messages(), timeout=TIMEOUT)]
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
        error = await router.error(stub.Transcribe(request, timeout=TIMEOUT))
        assert "options.num_beams" in (error.details() or "")
        assert "options.task: must be one of transcribe" in str(error.details())
        request = transcription_pb2.TranscribeRequest(
            audio=transcription_pb2.Audio(content=b"x", format=99), options=OPTIONS
        )
        error = await router.error(stub.Transcribe(request, timeout=TIMEOUT))
        assert "audio.format: must be one of wav" in str(error.details())

    play(scenario)
