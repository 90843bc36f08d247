"""Descriptions of models, their ladders and transcript settings, and their messages."""

from collections.abc import Mapping
from typing import Any

from shaperouter.v1 import model_pb2
from shaperouter_service.routing.call_ladders import ServedCall
from shaperouter_service.routing.ladder import Ladder
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.routing.served_model import ServedModel
from shaperouter_service.speech.transcription import Task, TranscriptSettings
from shaperouter_service.speech.transcription.segments import FRAMES_PER_SECOND
from shaperouter_service.wire.calls import served_call_from_message, served_call_to_message
from shaperouter_service.wire.options import options_from_message, options_to_message
from shaperouter_service.wire.translation import Codec, Translation, unchanged

LADDERS = Translation(
    Ladders,
    model_pb2.Ladders,
    names={
        "encode_lengths": "lengths",
        "encode_rows": "rows",
        "encode_batch_tokens": "batch_tokens",
    },
    codecs={
        Ladder: Codec(lambda ladder: ladder.rungs, lambda rungs: Ladder(tuple(rungs))),
        "align_lengths": Codec(
            lambda ladder: ladder.rungs, lambda rungs: Ladder(tuple(rungs)) if rungs else None
        ),
    },
)

TRANSCRIPTS = Translation(
    TranscriptSettings,
    model_pb2.TranscriptSettings,
    names={
        "window_seconds": "window_frames",
        "language_token_ids": "languages",
        "task_token_ids": "tasks",
        "end_token_id": "end",
        "start_token_id": "start",
        "previous_token_id": "previous",
        "no_speech_token_id": "no_speech",
        "no_timestamps_token_id": "no_timestamps",
        "last_initial_timestamp_token_id": "last_initial_timestamp",
        "suppressed_token_ids": "suppressed",
        "begin_suppressed_token_ids": "begin_suppressed",
    },
    codecs={
        "tasks": Codec(unchanged, lambda ids: {Task(name): ids[name] for name in ids}),
        "window_frames": Codec(
            lambda frames: frames / FRAMES_PER_SECOND,
            lambda seconds: round(seconds * FRAMES_PER_SECOND),
        ),
    },
)

MODELS = Translation(
    ServedModel,
    model_pb2.Model,
    codecs={
        Ladders: LADDERS,
        ServedCall: Codec(served_call_to_message, served_call_from_message),
        TranscriptSettings: TRANSCRIPTS,
        Mapping[str, Any]: Codec(options_to_message, options_from_message),
    },
)
model_to_message = MODELS.to_message
