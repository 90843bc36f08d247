"""A fake worker whose model transcribes, and sounds for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from harness.transcripts import END, TOKENS, transcript
from shaperouter.v1 import generation_pb2, worker_pb2
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.speech.transcription import TranscriptSettings
from shaperouter_service.wire import models as wire_models

if TYPE_CHECKING:
    from harness.fake_events import Step
    from harness.fake_worker import FakeWorker

RATE = 16_000
SETTINGS = TranscriptSettings(
    tokens=TOKENS,
    suppressed=(),
    begin_suppressed=(),
    last_initial_timestamp=TOKENS.first_timestamp + 50,
    mel_bands=80,
    window_frames=3000,
)


def tone(seconds: float) -> np.ndarray:
    """16-bit samples of a tone at 16 kHz."""
    return (3000 * np.sin(np.arange(round(seconds * RATE)) / 7)).astype("<i2")


async def transcribes(worker: FakeWorker) -> None:
    """Has a worker's model transcribe every window to one segment."""
    (model,) = worker.models
    model.transcripts.CopyFrom(wire_models.TRANSCRIPTS.to_message(SETTINGS))
    model.vocab_size, model.max_length, model.max_source_length = 2000, 64, 1500
    ladders = Ladders.default(
        max_length=64,
        slots=4,
        prefill_piece=64,
        max_source_length=1500,
        has_whole_source=True,
        has_transcript=True,
    )
    model.ladders.CopyFrom(wire_models.LADDERS.to_message(ladders))
    end = worker_pb2.RunCompletion(
        finish_reason=generation_pb2.FINISH_REASON_EOS, no_speech_probability=0.25
    )
    worker.script = [
        worker.stall(),
        worker.tokens(*transcript(0.0, " hello", 1.0), END),
        worker_pb2.RunResponse(completion=end),
    ]
    usual = worker.script_of

    def script_of(request: worker_pb2.RunRequest) -> list[Step]:
        if request.HasField("alignment"):
            timed = len(request.token_ids) - request.alignment.prefix_tokens - 1
            aligned = worker_pb2.AlignedTokens(places=range(timed + 1), logprobs=[-0.5] * timed)
            completion = worker_pb2.RunCompletion(
                finish_reason=generation_pb2.FINISH_REASON_EOS, aligned=aligned
            )
            return [worker_pb2.RunResponse(completion=completion)]
        rules = request.options.transcript
        if rules.HasField("least_first"):
            return [worker.tokens(rules.least_first), worker_pb2.RunResponse(completion=end)]
        return usual(request)

    worker.script_of = script_of
    await worker.change()
