"""Transcriptions and their messages."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from shaperouter.v1 import transcription_pb2
from shaperouter_service.generation.run_events import Stalled
from shaperouter_service.generation.transcription import (
    Language,
    Progress,
    TranscriptionCompletion,
    TranscriptionEvent,
    TranscriptionRequest,
)
from shaperouter_service.speech.audio import Container, Encoding
from shaperouter_service.speech.audio.declared import DeclaredAudio
from shaperouter_service.speech.transcription import Segment, Task
from shaperouter_service.wire.translation import EventTranslation, Translation

Start: TypeAlias = transcription_pb2.TranscribeRequest | transcription_pb2.TranscribeStreamStart

_FORMATS: Mapping[int, Container | Encoding | None] = {
    transcription_pb2.AUDIO_FORMAT_UNSPECIFIED: None,
    transcription_pb2.AUDIO_FORMAT_WAV: Container.WAV,
    transcription_pb2.AUDIO_FORMAT_FLAC: Container.FLAC,
    transcription_pb2.AUDIO_FORMAT_OGG: Container.OGG,
    transcription_pb2.AUDIO_FORMAT_MP3: Container.MP3,
    transcription_pb2.AUDIO_FORMAT_PCM_S16LE: Encoding.S16LE,
    transcription_pb2.AUDIO_FORMAT_PCM_F32LE: Encoding.F32LE,
}
_TASKS: Mapping[int, Task] = {
    transcription_pb2.TRANSCRIPTION_TASK_TRANSCRIBE: Task.TRANSCRIBE,
    transcription_pb2.TRANSCRIPTION_TASK_TRANSLATE: Task.TRANSLATE,
}


def transcription_from_message(message: Start) -> TranscriptionRequest:
    """The request of a message. Takes the recording out of the message, to have it only once."""
    content = message.audio.content
    message.audio.ClearField("content")
    step_seconds = None
    if isinstance(message, transcription_pb2.TranscribeStreamStart):
        step_seconds = message.step_seconds if message.HasField("step_seconds") else None
    return TranscriptionRequest(
        model=message.model,
        audio=audio_from_message(message.audio),
        content=content,
        options=transcription_options_from_message(message.options),
        step_seconds=step_seconds,
    )


def audio_from_message(message: transcription_pb2.Audio) -> DeclaredAudio:
    """A message's declarations about its recording; an unknown format is kept and refused later."""
    return DeclaredAudio(
        format=_FORMATS.get(message.format, int(message.format)),
        sample_rate=message.sample_rate if message.HasField("sample_rate") else None,
        channels=message.channels if message.HasField("channels") else None,
    )


def transcription_options_from_message(
    message: transcription_pb2.TranscriptionOptions,
) -> dict[str, Any]:
    """The options that a message has, by name; an unknown task stays, to be refused."""
    options = {field.name: value for field, value in message.ListFields()}
    if "task" in options:
        options["task"] = _TASKS.get(message.task, int(message.task))
    if "temperatures" in options:
        options["temperatures"] = tuple(message.temperatures)
    return options


_SECONDS = {
    "start_seconds": "start",
    "end_seconds": "end",
    "transcribed_seconds": "transcribed",
    "received_seconds": "received",
}
segment_to_message = Translation(
    Segment, transcription_pb2.TranscribedSegment, names=_SECONDS
).to_message
completion_to_message = Translation(
    TranscriptionCompletion, transcription_pb2.TranscriptionCompletion
).to_message
transcription_event_to_message = EventTranslation[
    TranscriptionEvent, transcription_pb2.TranscribeStreamResponse
](
    transcription_pb2.TranscribeStreamResponse,
    {
        "stall": Stalled,
        "language": Language,
        "segment": Segment,
        "progress": Progress,
        "completion": TranscriptionCompletion,
    },
    names=_SECONDS,
).to_message
