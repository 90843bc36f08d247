"""Transcript settings of models and their messages."""

from shaperouter.v1 import model_pb2
from shaperouter_service.speech.transcription import Task, TranscriptSettings, TranscriptTokens
from shaperouter_service.speech.transcription.segments import FRAMES_PER_SECOND


def transcript_settings_to_message(settings: TranscriptSettings) -> model_pb2.TranscriptSettings:
    """The message of a model's transcript settings."""
    tokens = settings.tokens
    return model_pb2.TranscriptSettings(
        window_seconds=settings.window_frames / FRAMES_PER_SECOND,
        mel_bands=settings.mel_bands,
        language_token_ids=tokens.languages,
        task_token_ids={task.value: token for task, token in tokens.tasks.items()},
        end_token_id=tokens.end,
        start_token_id=tokens.start,
        previous_token_id=tokens.previous,
        no_speech_token_id=tokens.no_speech,
        no_timestamps_token_id=tokens.no_timestamps,
        last_initial_timestamp_token_id=settings.last_initial_timestamp,
        suppressed_token_ids=settings.suppressed,
        begin_suppressed_token_ids=settings.begin_suppressed,
    )


def transcript_settings_from_message(message: model_pb2.TranscriptSettings) -> TranscriptSettings:
    """A model's transcript settings from their message."""
    return TranscriptSettings(
        tokens=TranscriptTokens(
            end=message.end_token_id,
            start=message.start_token_id,
            languages=dict(message.language_token_ids),
            tasks={Task(name): token for name, token in message.task_token_ids.items()},
            previous=message.previous_token_id,
            no_speech=message.no_speech_token_id,
            no_timestamps=message.no_timestamps_token_id,
        ),
        suppressed=tuple(message.suppressed_token_ids),
        begin_suppressed=tuple(message.begin_suppressed_token_ids),
        last_initial_timestamp=message.last_initial_timestamp_token_id,
        mel_bands=message.mel_bands,
        window_frames=round(message.window_seconds * FRAMES_PER_SECOND),
    )
