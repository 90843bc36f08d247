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
from shaperouter_service.wire.run_events import graph_use_to_message, stall_to_message

Start: TypeAlias = transcription_pb2.TranscribeRequest | transcription_pb2.TranscribeStreamStart
Response = transcription_pb2.TranscribeStreamResponse

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


def transcription_event_to_message(event: TranscriptionEvent) -> Response:
    """The message of a transcription's event."""
    match event:
        case Stalled():
            return Response(stall=stall_to_message(event))
        case Language():
            return Response(language=_language_to_message(event))
        case Segment():
            return Response(segment=segment_to_message(event))
        case Progress():
            return Response(
                progress=transcription_pb2.TranscriptionProgress(
                    transcribed_seconds=event.transcribed, received_seconds=event.received
                )
            )
        case TranscriptionCompletion():
            return Response(completion=completion_to_message(event))


def segment_to_message(segment: Segment) -> transcription_pb2.TranscribedSegment:
    """The message of a segment."""
    return transcription_pb2.TranscribedSegment(
        start_seconds=segment.start,
        end_seconds=segment.end,
        text=segment.text,
        token_ids=segment.token_ids,
        words=[
            transcription_pb2.TranscribedWord(
                text=word.text,
                start_seconds=word.start,
                end_seconds=word.end,
                probability=word.probability,
            )
            for word in segment.words
        ],
        temperature=segment.temperature,
        mean_logprob=segment.mean_logprob,
        compression_ratio=segment.compression_ratio,
        no_speech_probability=segment.no_speech_probability,
    )


def completion_to_message(
    completion: TranscriptionCompletion,
) -> transcription_pb2.TranscriptionCompletion:
    """The message of a transcription's completion."""
    return transcription_pb2.TranscriptionCompletion(
        request_id=completion.request_id,
        model=completion.model,
        language=_language_to_message(completion.language),
        audio_seconds=completion.audio_seconds,
        total_seconds=completion.total_seconds,
        device_seconds=sum(use.device_seconds for use in completion.graphs),
        seed=completion.seed,
        graphs=map(graph_use_to_message, completion.graphs),
    )


def _language_to_message(language: Language) -> transcription_pb2.DetectedLanguage:
    return transcription_pb2.DetectedLanguage(code=language.code, probability=language.probability)
