"""Requests to transcribe or translate a recording: the texts of a form."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from shaperouter.v1.transcription_pb2 import TranscriptionOptions
from shaperouter_service.edge.http.openai.fields import Fields, told
from shaperouter_service.edge.option_values import number, option_value
from shaperouter_service.generation.option import Kind
from shaperouter_service.generation.transcription import TranscriptionRequest
from shaperouter_service.speech.audio import Encoding
from shaperouter_service.speech.audio.declared import FORMATS, DeclaredAudio
from shaperouter_service.speech.transcription import Task

# Name of the recording's field.
FILE = "file"
RESPONSE_FORMATS = ("json", "text", "srt", "vtt", "verbose_json")
SEGMENT, WORD = "segment", "word"

# Fields that may occur several times, also as `name[]`.
_LISTS = ("temperature", "temperatures", "timestamp_granularities", "include")
# Callers' names of the core's fields, where they differ; an option may have another one besides.
_AUDIO_NAMES = {
    "audio.content": FILE,
    "audio.format": "audio_format",
    "audio.sample_rate": "sample_rate",
    "audio.channels": "channels",
}
_OPTION_NAMES = {"prompt": "initial_prompt", "temperature": "temperatures"}
# Our options as the gRPC contract declares them. The path says the task, and OpenAI has a field of
# its own for the times of words.
_KINDS = {
    FieldDescriptor.TYPE_STRING: Kind.LANGUAGE,
    FieldDescriptor.TYPE_BOOL: Kind.FLAG,
    FieldDescriptor.TYPE_INT32: Kind.COUNT,
    FieldDescriptor.TYPE_INT64: Kind.SEED,
    FieldDescriptor.TYPE_DOUBLE: Kind.NUMBER,
}
_OPTIONS: Mapping[str, Kind] = {
    field.name: _KINDS[field.type]
    for field in TranscriptionOptions.DESCRIPTOR.fields
    if field.name not in ("task", "word_timestamps")
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeechRequest:
    """A request to transcribe or translate a recording, and how to answer it.

    Attributes:
        request: The request, without the recording.
        fields: Its fields, for errors in the caller's words.
        task: Whether to transcribe or to translate.
        response_format: One of `RESPONSE_FORMATS`.
        streams: Whether to answer as segments become final.
        granularities: What has times in a `verbose_json`: `SEGMENT`, `WORD` or both.
    """

    request: TranscriptionRequest
    fields: Fields
    task: Task
    response_format: str
    streams: bool
    granularities: Sequence[str]


def declares_samples(texts: Iterable[tuple[str, str]]) -> bool:
    """Whether texts declare raw samples, which are transcribed as they arrive."""
    declared = [value for name, value in texts if name == "audio_format"]
    return len(declared) == 1 and isinstance(FORMATS.get(declared[0]), Encoding)


def speech_request(
    texts: Iterable[tuple[str, str]], task: Task, *, has_file: bool, is_arriving: bool
) -> SpeechRequest:
    """Reads a request.

    Args:
        texts: Names and values of the form's texts.
        task: Whether to transcribe or to translate.
        has_file: Whether the form has a file.
        is_arriving: Whether the file is of raw samples that are still arriving.

    Raises:
        InvalidRequestError: A field is unknown, missing, not supported, or not of its type.
    """
    fields = _form_fields(texts)
    if not has_file:
        fields.refuse(FILE, "is required")
    model = fields.text("model")
    if not model:
        fields.refuse("model", "is required; GET /v1/models lists the models")
    streams = _value(fields, "stream", Kind.FLAG) is True
    response_format = fields.take("response_format")
    if response_format is None:
        response_format = "json"
    allowed = ("json", "text") if streams else RESPONSE_FORMATS
    if response_format not in allowed:
        where = " when stream is true" if streams else ""
        rule = f"must be one of {', '.join(allowed)}{where}"
        fields.refuse("response_format", f"{rule}, got {told(response_format)}")
    granularities = _granularities(fields, response_format)
    options = _options(fields)
    options["task"] = task
    if WORD in granularities:
        options["word_timestamps"] = True
    audio = _audio(fields)
    step_seconds = _value(fields, "step_seconds", Kind.NUMBER)
    if step_seconds is not None and not is_arriving:
        rule = "must not be set unless the file is of raw samples and audio_format comes before it"
        fields.refuse("step_seconds", f"{rule}, got {step_seconds:g}")
    _refuse_unsupported(fields, task)
    fields.end()
    return SpeechRequest(
        request=TranscriptionRequest(
            model=model, audio=audio, content=b"", options=options, step_seconds=step_seconds
        ),
        fields=fields,
        task=task,
        response_format=response_format,
        streams=streams,
        granularities=granularities,
    )


def _form_fields(texts: Iterable[tuple[str, str]]) -> Fields:
    """The fields of a form: texts, and lists of texts for fields that may occur several times."""
    found: dict[str, list[str]] = {}
    for name, value in texts:
        base = name.removesuffix("[]")
        found.setdefault(base if base in _LISTS else name, []).append(value)
    fields = Fields({name: vs if name in _LISTS else vs[0] for name, vs in found.items()})
    fields.names |= _AUDIO_NAMES
    for name, values in found.items():
        if name not in _LISTS and len(values) > 1:
            fields.refuse(name, f"must occur once, got {len(values)} values")
    return fields


def _value(fields: Fields, name: str, kind: Kind) -> Any:
    """The value of a field; None if it is missing or none."""
    text = fields.take(name)
    if text is None:
        return None
    try:
        return option_value(kind, text)
    except ValueError as error:
        fields.refuse(name, str(error))
        return None


def _options(fields: Fields) -> dict[str, Any]:
    """Our options, by our names."""
    options: dict[str, Any] = {}
    for given in (*_OPTION_NAMES, *_OPTIONS):
        name = _OPTION_NAMES.get(given, given)
        if name == "temperatures":
            value: Any = _temperatures(fields, given)
        else:
            value = _value(fields, given, _OPTIONS[name])
        if value is None:
            continue
        if name in options:
            fields.refuse(given, f"must not be set with {fields.names[name]}, the same option")
        options[name], fields.names[name] = value, given
    # As in OpenAI's API, 0 alone means to raise the temperature when a transcript is improbable.
    if fields.names.get("temperatures") == "temperature" and options["temperatures"] == (0.0,):
        del options["temperatures"]
    return options


def _temperatures(fields: Fields, name: str) -> tuple[float, ...] | None:
    values = fields.take(name)
    if values is None:
        return None
    numbers = tuple(found for found in map(number, values) if found is not None)
    if len(numbers) < len(values):
        fields.refuse(name, f"must be numbers, got {told(values)}")
        return None
    return numbers


def _granularities(fields: Fields, response_format: str) -> Sequence[str]:
    given = fields.take("timestamp_granularities")
    if given is None:
        return (SEGMENT,)
    if not set(given) <= {SEGMENT, WORD}:
        fields.refuse("timestamp_granularities", f"must be segment or word, got {told(given)}")
    elif response_format != "verbose_json":
        rule = "must not be set unless response_format is verbose_json"
        fields.refuse("timestamp_granularities", f"{rule}, got {told(given)}")
    return tuple(given)


def _audio(fields: Fields) -> DeclaredAudio:
    name = fields.take("audio_format")
    if name is not None and name not in FORMATS:
        fields.refuse("audio_format", f"must be one of {', '.join(FORMATS)}, got {told(name)}")
    return DeclaredAudio(
        format=FORMATS.get(name) if name else None,
        sample_rate=_value(fields, "sample_rate", Kind.COUNT),
        channels=_value(fields, "channels", Kind.COUNT),
    )


def _refuse_unsupported(fields: Fields, task: Task) -> None:
    fields.only("task", str(task), why="the path says the task")
    fields.only("word_timestamps", why="timestamp_granularities is")
    # Recordings are always cut where the model finds an end of speech.
    fields.only("chunking_strategy", "auto", "none")
    fields.only("include", why="transcripts have no log-probabilities of tokens")
    for name in ("keywords", "languages", "known_speaker_names", "known_speaker_references"):
        fields.only(name)
