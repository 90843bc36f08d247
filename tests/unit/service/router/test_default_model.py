"""A call that names no model is served by the only model that can serve it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from google.protobuf.message import Message
from google.rpc import error_details_pb2
from grpc import StatusCode, aio

from harness.transcripts import TOKENS
from harness.waiting import TIMEOUT
from harness.warming import last, warm
from shaperouter.v1 import (
    generation_pb2,
    signature_pb2,
    transcription_pb2,
    transcription_pb2_grpc,
)
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.speech.transcription import TranscriptSettings
from shaperouter_service.wire import models as wire_models

if TYPE_CHECKING:
    from harness.fake_worker import FakeWorker
    from harness.router import Play, Router

Detail = Callable[[aio.AioRpcError, type[Message]], Any]

SETTINGS = TranscriptSettings(
    tokens=TOKENS,
    suppressed=(),
    begin_suppressed=(),
    last_initial_timestamp=TOKENS.first_timestamp + 50,
    mel_bands=80,
    window_frames=3000,
)
ALIGN_LENGTH = 64


async def start(worker: FakeWorker, *, transcribers: set[str]) -> None:
    """Starts a worker some of whose models transcribe recordings."""
    for model in worker.models:
        if model.name in transcribers:
            ladders = Ladders.default(
                max_length=ALIGN_LENGTH,
                slots=model.slots,
                prefill_piece=16,
                max_source_length=1500,
                has_whole_source=True,
                has_transcript=True,
            )
            model.ladders.CopyFrom(wire_models.LADDERS.to_message(ladders))
            model.transcripts.CopyFrom(wire_models.TRANSCRIPTS.to_message(SETTINGS))
    await worker.start()


async def transcribe(router: Router) -> aio.AioRpcError:
    """The error of a recording without samples, which is found only once a model is chosen."""
    stub = transcription_pb2_grpc.TranscriptionServiceStub(router.channel)
    return await router.error(
        stub.Transcribe(transcription_pb2.TranscribeRequest(), timeout=TIMEOUT)
    )


def violation(detail: Detail, error: aio.AioRpcError) -> Any:
    assert error.code() is StatusCode.INVALID_ARGUMENT
    (found,) = detail(error, error_details_pb2.BadRequest).field_violations
    return found


def test_text_goes_to_the_only_model_that_takes_text(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        await start(worker, transcribers={"whisper"})
        response = await router.generate()
        assert response.completion.model == "tiny"
        assert [run.model for run in worker.requests] == ["tiny"]

    play(scenario, models=("tiny", "whisper"), started=False)


def test_a_recording_goes_to_the_only_model_that_transcribes(play: Play, detail: Detail) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        await start(worker, transcribers={"whisper"})
        assert violation(detail, await transcribe(router)).field.startswith("audio")
        assert router.metric("requests_total", model="whisper", code="INVALID_ARGUMENT") == 1

    play(scenario, models=("tiny", "whisper"), started=False)


def test_a_graph_to_warm_is_of_the_only_model_that_has_its_kind(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        await start(worker, transcribers={"whisper"})
        await router.generate()  # the router knows the worker
        align = signature_pb2.Signature(
            kind=signature_pb2.GRAPH_KIND_ALIGN, rows=1, length=ALIGN_LENGTH, beams=1
        )
        (graph,) = await last(warm(router, align))
        assert graph.signature.model == "whisper"

    play(scenario, models=("tiny", "whisper"), started=False)


def test_several_models_that_could_are_named(play: Play, detail: Detail) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        await start(worker, transcribers={"whisper"})
        for call in (router.generate(), router.stream()):
            found = violation(detail, await router.error(call))
            assert found.field == "model"
            assert found.description == (
                "must be set; models that can generate from text: large, small"
            )

    play(scenario, models=("small", "large", "whisper"), started=False)


def test_models_none_of_which_could_are_named(play: Play, detail: Detail) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        await start(worker, transcribers=set())
        found = violation(detail, await transcribe(router))
        assert found.field == "model"
        assert found.description == (
            "no model of this service can transcribe recordings; its models: large, small"
        )

    play(scenario, models=("small", "large"), started=False)


@pytest.mark.usefixtures("wide_margins")
def test_a_choice_that_depends_on_models_waits_until_they_are_loaded(
    play: Play, detail: Detail
) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        error = await router.error(router.generate(timeout=5.0))
        assert error.code() is StatusCode.DEADLINE_EXCEEDED
        assert detail(error, error_details_pb2.ErrorInfo).reason == "NO_WORKER_IN_TIME"
        await start(worker, transcribers={"whisper"})
        assert isinstance(await router.generate(), generation_pb2.GenerateResponse)

    play(scenario, models=("tiny", "whisper"), started=False)
