"""Values that are translated to messages and back are the same."""

import dataclasses
import math
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.routing import LADDERS
from harness.transcripts import TOKENS
from shaperouter.v1 import worker_pb2
from shaperouter_service.generation.resolution import neutral_options
from shaperouter_service.generation.run_events import (
    AlignedTokens,
    FinishReason,
    GraphUse,
    Hypothesis,
    InputUsage,
    Isolated,
    NewTokens,
    PromptLogprobs,
    RunCompletion,
    RunEvent,
    RunTimings,
    Stalled,
    TokenLogprobs,
)
from shaperouter_service.generation.run_request import RunRequest, Sound, TranscriptConstraints
from shaperouter_service.routing.call_ladders import AxisLadder, CallLadders, ServedCall
from shaperouter_service.routing.ladder import Ladder
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.routing.served_model import ModelKind, ServedModel
from shaperouter_service.routing.signatures import GraphKind
from shaperouter_service.routing.snapshots import (
    BudgetReport,
    CallQueueReport,
    CompileMode,
    GraphReport,
    GraphState,
    Histogram,
    LaneReport,
    Snapshot,
    StartTimes,
)
from shaperouter_service.speech.transcription import TranscriptSettings
from shaperouter_service.tensors.dtypes import DType
from shaperouter_service.tensors.specs import Axis, CallSpec, TensorSpec
from shaperouter_service.wire import models as wire_models
from shaperouter_service.wire.run_events import run_event_from_message, run_event_to_message
from shaperouter_service.wire.run_requests import run_request_from_message, run_request_to_message
from shaperouter_service.wire.snapshots import snapshot_from_message, snapshot_to_message


@given(
    max_length=st.integers(1, 8192),
    slots=st.integers(1, 64),
    prefill_piece=st.integers(1, 512),
    max_source_length=st.integers(0, 4096),
    has_whole_source=st.booleans(),
    has_transcript=st.booleans(),
)
def test_ladders_arrive_as_they_were_sent(**settings: Any) -> None:
    ladders = Ladders.default(**settings)
    assert wire_models.LADDERS.from_message(wire_models.LADDERS.to_message(ladders)) == ladders


SETTINGS = TranscriptSettings(
    tokens=TOKENS,
    suppressed=(1, 2, 3),
    begin_suppressed=(4,),
    last_initial_timestamp=TOKENS.first_timestamp + 50,
    mel_bands=80,
    window_frames=3000,
)
MODEL = ServedModel(
    name="m",
    family="whisper",
    kind=ModelKind.TRANSCRIBER,
    vocab_size=1,
    max_length=2,
    max_source_length=3,
    decoder_start_token_id=0,
    default_options={"max_new_tokens": 4, "eos_token_ids": (5,)},
    default_max_length=5,
    default_min_length=2,
    transcripts=SETTINGS,
    ladders=LADDERS,
    dtype="float32",
    weight_dtype="int8",
    kernels="avx512",
    parameters=6,
    weight_bytes=7,
    encoder_weight_bytes=8,
    kv_cache_bytes=9,
    kv_cache_bytes_per_token=10,
    slots=11,
    ready_workers=12,
    tokenizer="T",
    characters_per_token=13,
    token_types=14,
    text_prompt="query: ",
    lowercases_text=True,
)


FUNCTION = ServedModel(
    name="f",
    kind=ModelKind.FUNCTION,
    call=ServedCall(
        spec=CallSpec(
            inputs=(TensorSpec(name="x", dtype=DType.FP32, shape=(None, None, None, 3)),),
            outputs=(TensorSpec(name="y", dtype=DType.BOOL, shape=(None, None)),),
            batch=Axis(name="batch", inputs={"x": 0}, outputs={"y": 0}),
            axes=(
                Axis(name="length", inputs={"x": 1}),
                Axis(name="width", inputs={"x": 2}, outputs={"y": 1}),
            ),
        ),
        ladders=CallLadders(
            rows=Ladder((1, 8)),
            axes=(
                AxisLadder(name="length", ladder=Ladder((16, 32))),
                AxisLadder(name="width", ladder=None),
            ),
        ),
        compiled=False,
        labels=("cat", "dog"),
    ),
)


def test_a_snapshot_arrives_as_it_was_sent() -> None:
    graph = GraphReport(
        signature=LADDERS.first_decode("m", 4),
        worker="w",
        state=GraphState.FAILED,
        traces=1,
        compiles=2,
        loads=3,
        failures=4,
        trace_seconds=0.5,
        compile_seconds=Histogram((0.1, 1.0), (1, 0, 2), 3.5),
        load_seconds=1.5,
        make_seconds=2.5,
        stall_seconds=Histogram((0.1,), (1, 2), 4.5),
        device_seconds=Histogram((0.2,), (3, 4), 5.5),
        overhead_seconds=12.5,
        error="no room",
        step_seconds=3.5,
        missed_seconds=4.5,
        recent_missed_seconds=5.5,
        would_save_seconds=6.5,
        recent_served_seconds=7.5,
        padded_seconds=8.5,
        state_seconds=9.5,
        retry_seconds=10.5,
        left_seconds=11.5,
        before_ready=True,
    )
    queue = CallQueueReport(model="f", calls=1, rows=2, elements=3, padding_elements=4)
    lane = LaneReport(**{field.name: 2 for field in fields(LaneReport)} | {"model": "m"})
    budget = BudgetReport(
        mode=CompileMode.FROZEN,
        room=1,
        max_graphs=2,
        memory_bytes=3,
        max_memory_bytes=4,
        threads=5,
        exhausted=True,
    )
    snapshot = Snapshot(
        worker="w",
        incarnation="i",
        device="CPU:0",
        models=(
            MODEL,
            dataclasses.replace(MODEL, transcripts=None, decoder_start_token_id=None),
            FUNCTION,
        ),
        graphs=(graph,),
        lanes=(lane,),
        call_queues=(queue,),
        compile_queue_depth=6,
        warm=True,
        budget=budget,
        start=StartTimes(import_seconds=1.5, weights_seconds=0.0),
    )
    assert snapshot_from_message(snapshot_to_message(snapshot)) == snapshot


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"sound": Sound(samples=b"\0\0\0\0", positions=3), "align_after": 1},
        {"constraints": TranscriptConstraints()},
        {
            "constraints": TranscriptConstraints(
                first_timestamp=1,
                last_initial_timestamp=2,
                begin_suppressed=(3, 4),
                min_first_token=0,
                max_first_token=6,
                no_speech=7,
                no_speech_position=8,
            )
        },
        {"options": neutral_options(max_new_tokens=3, seed=2**63 - 1, stop=("a", "b"), logprobs=0)},
        {"options": neutral_options(prompt_logprobs=0, max_new_tokens=0), "scored_tokens": 1},
        {"options": neutral_options(biases=(((1, 2), -math.inf), ((3,), 0.5)))},
    ],
)
def test_a_run_request_arrives_as_it_was_sent(changes: dict[str, Any]) -> None:
    request = RunRequest(
        request_id="r",
        model="m",
        token_ids=(1, 2),
        options=neutral_options(),
        client="c",
        source_token_ids=(3,),
        tokens_interval_seconds=0.5,
        generated_token_ids=(4,),
        lane_beams=8,
        resumed=True,
        suspect=True,
    )
    request = dataclasses.replace(request, **changes)
    assert run_request_from_message(run_request_to_message(request)) == request


LOGPROBS = (TokenLogprobs(1, -0.5, ((1, -0.5), (2, -1.5))),)
USE = GraphUse(
    asked=LADDERS.first_of("m", GraphKind.PREFILL),
    served=LADDERS.first_decode("m", 2),
    calls=3,
    device_seconds=0.5,
)


@pytest.mark.parametrize(
    "event",
    [
        Stalled(LADDERS.first_of("m", GraphKind.PREFILL)),
        Isolated(),
        NewTokens((1,), LOGPROBS),
        NewTokens((1, 2)),
        NewTokens((1,), input_usage=InputUsage()),
        NewTokens(
            (1,),
            input_usage=InputUsage(
                cached_prompt_tokens=1, padded_prompt_tokens=2, padded_source_tokens=3
            ),
        ),
        PromptLogprobs(LOGPROBS),
        RunCompletion(finish_reason=FinishReason.EOS, graphs=(), hypotheses=()),
        RunCompletion(
            finish_reason=FinishReason.STOP,
            timings=RunTimings(
                queue_seconds=1.5, stall_seconds=2.5, prefill_seconds=3.5, decode_seconds=4.5
            ),
            input_usage=InputUsage(
                cached_prompt_tokens=1, padded_prompt_tokens=2, padded_source_tokens=3
            ),
            graphs=(USE,),
            hypotheses=(
                Hypothesis(
                    token_ids=(1,), finish_reason=FinishReason.LENGTH, score=-0.5, logprobs=LOGPROBS
                ),
            ),
            no_speech_probability=0.0,
            aligned=AlignedTokens((0, 5), (-0.5,)),
        ),
    ],
    ids=lambda event: type(event).__name__,
)
def test_an_event_arrives_as_it_was_sent(event: RunEvent) -> None:
    assert run_event_from_message(run_event_to_message(event)) == event


def test_an_event_of_a_later_version_is_skipped() -> None:
    assert run_event_from_message(worker_pb2.RunResponse()) is None
