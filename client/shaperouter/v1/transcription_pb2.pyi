from shaperouter.v1 import generation_pb2 as _generation_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AudioFormat(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    AUDIO_FORMAT_UNSPECIFIED: _ClassVar[AudioFormat]
    AUDIO_FORMAT_WAV: _ClassVar[AudioFormat]
    AUDIO_FORMAT_FLAC: _ClassVar[AudioFormat]
    AUDIO_FORMAT_OGG: _ClassVar[AudioFormat]
    AUDIO_FORMAT_MP3: _ClassVar[AudioFormat]
    AUDIO_FORMAT_PCM_S16LE: _ClassVar[AudioFormat]
    AUDIO_FORMAT_PCM_F32LE: _ClassVar[AudioFormat]

class TranscriptionTask(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TRANSCRIPTION_TASK_UNSPECIFIED: _ClassVar[TranscriptionTask]
    TRANSCRIPTION_TASK_TRANSCRIBE: _ClassVar[TranscriptionTask]
    TRANSCRIPTION_TASK_TRANSLATE: _ClassVar[TranscriptionTask]
AUDIO_FORMAT_UNSPECIFIED: AudioFormat
AUDIO_FORMAT_WAV: AudioFormat
AUDIO_FORMAT_FLAC: AudioFormat
AUDIO_FORMAT_OGG: AudioFormat
AUDIO_FORMAT_MP3: AudioFormat
AUDIO_FORMAT_PCM_S16LE: AudioFormat
AUDIO_FORMAT_PCM_F32LE: AudioFormat
TRANSCRIPTION_TASK_UNSPECIFIED: TranscriptionTask
TRANSCRIPTION_TASK_TRANSCRIBE: TranscriptionTask
TRANSCRIPTION_TASK_TRANSLATE: TranscriptionTask

class Audio(_message.Message):
    __slots__ = ("content", "format", "sample_rate", "channels")
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_RATE_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    content: bytes
    format: AudioFormat
    sample_rate: int
    channels: int
    def __init__(self, content: _Optional[bytes] = ..., format: _Optional[_Union[AudioFormat, str]] = ..., sample_rate: _Optional[int] = ..., channels: _Optional[int] = ...) -> None: ...

class TranscriptionOptions(_message.Message):
    __slots__ = ("language", "task", "word_timestamps", "timestamps", "initial_prompt", "condition_on_previous_text", "temperatures", "num_beams", "best_of", "compression_ratio_threshold", "logprob_threshold", "no_speech_threshold", "seed")
    LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    WORD_TIMESTAMPS_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMPS_FIELD_NUMBER: _ClassVar[int]
    INITIAL_PROMPT_FIELD_NUMBER: _ClassVar[int]
    CONDITION_ON_PREVIOUS_TEXT_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURES_FIELD_NUMBER: _ClassVar[int]
    NUM_BEAMS_FIELD_NUMBER: _ClassVar[int]
    BEST_OF_FIELD_NUMBER: _ClassVar[int]
    COMPRESSION_RATIO_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    LOGPROB_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    NO_SPEECH_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    language: str
    task: TranscriptionTask
    word_timestamps: bool
    timestamps: bool
    initial_prompt: str
    condition_on_previous_text: bool
    temperatures: _containers.RepeatedScalarFieldContainer[float]
    num_beams: int
    best_of: int
    compression_ratio_threshold: float
    logprob_threshold: float
    no_speech_threshold: float
    seed: int
    def __init__(self, language: _Optional[str] = ..., task: _Optional[_Union[TranscriptionTask, str]] = ..., word_timestamps: bool = ..., timestamps: bool = ..., initial_prompt: _Optional[str] = ..., condition_on_previous_text: bool = ..., temperatures: _Optional[_Iterable[float]] = ..., num_beams: _Optional[int] = ..., best_of: _Optional[int] = ..., compression_ratio_threshold: _Optional[float] = ..., logprob_threshold: _Optional[float] = ..., no_speech_threshold: _Optional[float] = ..., seed: _Optional[int] = ...) -> None: ...

class TranscribeRequest(_message.Message):
    __slots__ = ("model", "audio", "options")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    AUDIO_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    model: str
    audio: Audio
    options: TranscriptionOptions
    def __init__(self, model: _Optional[str] = ..., audio: _Optional[_Union[Audio, _Mapping]] = ..., options: _Optional[_Union[TranscriptionOptions, _Mapping]] = ...) -> None: ...

class TranscribeStreamStart(_message.Message):
    __slots__ = ("model", "audio", "options", "step_seconds")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    AUDIO_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    STEP_SECONDS_FIELD_NUMBER: _ClassVar[int]
    model: str
    audio: Audio
    options: TranscriptionOptions
    step_seconds: float
    def __init__(self, model: _Optional[str] = ..., audio: _Optional[_Union[Audio, _Mapping]] = ..., options: _Optional[_Union[TranscriptionOptions, _Mapping]] = ..., step_seconds: _Optional[float] = ...) -> None: ...

class TranscribeStreamRequest(_message.Message):
    __slots__ = ("start", "content")
    START_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    start: TranscribeStreamStart
    content: bytes
    def __init__(self, start: _Optional[_Union[TranscribeStreamStart, _Mapping]] = ..., content: _Optional[bytes] = ...) -> None: ...

class TranscribedWord(_message.Message):
    __slots__ = ("text", "start_seconds", "end_seconds", "probability")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    START_SECONDS_FIELD_NUMBER: _ClassVar[int]
    END_SECONDS_FIELD_NUMBER: _ClassVar[int]
    PROBABILITY_FIELD_NUMBER: _ClassVar[int]
    text: str
    start_seconds: float
    end_seconds: float
    probability: float
    def __init__(self, text: _Optional[str] = ..., start_seconds: _Optional[float] = ..., end_seconds: _Optional[float] = ..., probability: _Optional[float] = ...) -> None: ...

class TranscribedSegment(_message.Message):
    __slots__ = ("start_seconds", "end_seconds", "text", "token_ids", "words", "temperature", "mean_logprob", "compression_ratio", "no_speech_probability")
    START_SECONDS_FIELD_NUMBER: _ClassVar[int]
    END_SECONDS_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    MEAN_LOGPROB_FIELD_NUMBER: _ClassVar[int]
    COMPRESSION_RATIO_FIELD_NUMBER: _ClassVar[int]
    NO_SPEECH_PROBABILITY_FIELD_NUMBER: _ClassVar[int]
    start_seconds: float
    end_seconds: float
    text: str
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    words: _containers.RepeatedCompositeFieldContainer[TranscribedWord]
    temperature: float
    mean_logprob: float
    compression_ratio: float
    no_speech_probability: float
    def __init__(self, start_seconds: _Optional[float] = ..., end_seconds: _Optional[float] = ..., text: _Optional[str] = ..., token_ids: _Optional[_Iterable[int]] = ..., words: _Optional[_Iterable[_Union[TranscribedWord, _Mapping]]] = ..., temperature: _Optional[float] = ..., mean_logprob: _Optional[float] = ..., compression_ratio: _Optional[float] = ..., no_speech_probability: _Optional[float] = ...) -> None: ...

class DetectedLanguage(_message.Message):
    __slots__ = ("code", "probability")
    CODE_FIELD_NUMBER: _ClassVar[int]
    PROBABILITY_FIELD_NUMBER: _ClassVar[int]
    code: str
    probability: float
    def __init__(self, code: _Optional[str] = ..., probability: _Optional[float] = ...) -> None: ...

class TranscriptionCompletion(_message.Message):
    __slots__ = ("request_id", "model", "language", "audio_seconds", "total_seconds", "device_seconds", "seed", "graphs", "revision")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    AUDIO_SECONDS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    DEVICE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    GRAPHS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    model: str
    language: DetectedLanguage
    audio_seconds: float
    total_seconds: float
    device_seconds: float
    seed: int
    graphs: _containers.RepeatedCompositeFieldContainer[_generation_pb2.GraphUse]
    revision: str
    def __init__(self, request_id: _Optional[str] = ..., model: _Optional[str] = ..., language: _Optional[_Union[DetectedLanguage, _Mapping]] = ..., audio_seconds: _Optional[float] = ..., total_seconds: _Optional[float] = ..., device_seconds: _Optional[float] = ..., seed: _Optional[int] = ..., graphs: _Optional[_Iterable[_Union[_generation_pb2.GraphUse, _Mapping]]] = ..., revision: _Optional[str] = ...) -> None: ...

class TranscribeResponse(_message.Message):
    __slots__ = ("text", "segments", "completion")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_FIELD_NUMBER: _ClassVar[int]
    text: str
    segments: _containers.RepeatedCompositeFieldContainer[TranscribedSegment]
    completion: TranscriptionCompletion
    def __init__(self, text: _Optional[str] = ..., segments: _Optional[_Iterable[_Union[TranscribedSegment, _Mapping]]] = ..., completion: _Optional[_Union[TranscriptionCompletion, _Mapping]] = ...) -> None: ...

class TranscriptionProgress(_message.Message):
    __slots__ = ("transcribed_seconds", "received_seconds")
    TRANSCRIBED_SECONDS_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_SECONDS_FIELD_NUMBER: _ClassVar[int]
    transcribed_seconds: float
    received_seconds: float
    def __init__(self, transcribed_seconds: _Optional[float] = ..., received_seconds: _Optional[float] = ...) -> None: ...

class TranscribeStreamResponse(_message.Message):
    __slots__ = ("stall", "language", "segment", "progress", "completion")
    STALL_FIELD_NUMBER: _ClassVar[int]
    LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_FIELD_NUMBER: _ClassVar[int]
    stall: _generation_pb2.Stall
    language: DetectedLanguage
    segment: TranscribedSegment
    progress: TranscriptionProgress
    completion: TranscriptionCompletion
    def __init__(self, stall: _Optional[_Union[_generation_pb2.Stall, _Mapping]] = ..., language: _Optional[_Union[DetectedLanguage, _Mapping]] = ..., segment: _Optional[_Union[TranscribedSegment, _Mapping]] = ..., progress: _Optional[_Union[TranscriptionProgress, _Mapping]] = ..., completion: _Optional[_Union[TranscriptionCompletion, _Mapping]] = ...) -> None: ...
