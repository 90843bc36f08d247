from shaperouter.v1 import generation_pb2 as _generation_pb2
from shaperouter.v1 import inference_pb2 as _inference_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ModelKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MODEL_KIND_UNSPECIFIED: _ClassVar[ModelKind]
    MODEL_KIND_DECODER: _ClassVar[ModelKind]
    MODEL_KIND_ENCODER_DECODER: _ClassVar[ModelKind]
    MODEL_KIND_TRANSCRIBER: _ClassVar[ModelKind]
    MODEL_KIND_EMBEDDER: _ClassVar[ModelKind]
    MODEL_KIND_CLASSIFIER: _ClassVar[ModelKind]
    MODEL_KIND_FUNCTION: _ClassVar[ModelKind]
MODEL_KIND_UNSPECIFIED: ModelKind
MODEL_KIND_DECODER: ModelKind
MODEL_KIND_ENCODER_DECODER: ModelKind
MODEL_KIND_TRANSCRIBER: ModelKind
MODEL_KIND_EMBEDDER: ModelKind
MODEL_KIND_CLASSIFIER: ModelKind
MODEL_KIND_FUNCTION: ModelKind

class ListModelsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListModelsResponse(_message.Message):
    __slots__ = ("models",)
    MODELS_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedCompositeFieldContainer[Model]
    def __init__(self, models: _Optional[_Iterable[_Union[Model, _Mapping]]] = ...) -> None: ...

class GetModelRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class LoadModelRequest(_message.Message):
    __slots__ = ("name", "location", "share")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LOCATION_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    name: str
    location: str
    share: float
    def __init__(self, name: _Optional[str] = ..., location: _Optional[str] = ..., share: _Optional[float] = ...) -> None: ...

class LoadModelResponse(_message.Message):
    __slots__ = ("model",)
    MODEL_FIELD_NUMBER: _ClassVar[int]
    model: Model
    def __init__(self, model: _Optional[_Union[Model, _Mapping]] = ...) -> None: ...

class UnloadModelRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class UnloadModelResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Target(_message.Message):
    __slots__ = ("model", "share")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    model: str
    share: float
    def __init__(self, model: _Optional[str] = ..., share: _Optional[float] = ...) -> None: ...

class SetAliasRequest(_message.Message):
    __slots__ = ("name", "targets")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    name: str
    targets: _containers.RepeatedCompositeFieldContainer[Target]
    def __init__(self, name: _Optional[str] = ..., targets: _Optional[_Iterable[_Union[Target, _Mapping]]] = ...) -> None: ...

class SetAliasResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetModelResponse(_message.Message):
    __slots__ = ("model",)
    MODEL_FIELD_NUMBER: _ClassVar[int]
    model: Model
    def __init__(self, model: _Optional[_Union[Model, _Mapping]] = ...) -> None: ...

class Ladders(_message.Message):
    __slots__ = ("prefill_lengths", "lanes", "prefill_rows", "prefill_batch_tokens", "prefill_piece", "encode_lengths", "encode_rows", "encode_batch_tokens", "has_whole_source", "align_lengths")
    PREFILL_LENGTHS_FIELD_NUMBER: _ClassVar[int]
    LANES_FIELD_NUMBER: _ClassVar[int]
    PREFILL_ROWS_FIELD_NUMBER: _ClassVar[int]
    PREFILL_BATCH_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PREFILL_PIECE_FIELD_NUMBER: _ClassVar[int]
    ENCODE_LENGTHS_FIELD_NUMBER: _ClassVar[int]
    ENCODE_ROWS_FIELD_NUMBER: _ClassVar[int]
    ENCODE_BATCH_TOKENS_FIELD_NUMBER: _ClassVar[int]
    HAS_WHOLE_SOURCE_FIELD_NUMBER: _ClassVar[int]
    ALIGN_LENGTHS_FIELD_NUMBER: _ClassVar[int]
    prefill_lengths: _containers.RepeatedScalarFieldContainer[int]
    lanes: _containers.RepeatedCompositeFieldContainer[LaneLadders]
    prefill_rows: _containers.RepeatedScalarFieldContainer[int]
    prefill_batch_tokens: int
    prefill_piece: int
    encode_lengths: _containers.RepeatedScalarFieldContainer[int]
    encode_rows: _containers.RepeatedScalarFieldContainer[int]
    encode_batch_tokens: int
    has_whole_source: bool
    align_lengths: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, prefill_lengths: _Optional[_Iterable[int]] = ..., lanes: _Optional[_Iterable[_Union[LaneLadders, _Mapping]]] = ..., prefill_rows: _Optional[_Iterable[int]] = ..., prefill_batch_tokens: _Optional[int] = ..., prefill_piece: _Optional[int] = ..., encode_lengths: _Optional[_Iterable[int]] = ..., encode_rows: _Optional[_Iterable[int]] = ..., encode_batch_tokens: _Optional[int] = ..., has_whole_source: bool = ..., align_lengths: _Optional[_Iterable[int]] = ...) -> None: ...

class LaneLadders(_message.Message):
    __slots__ = ("beams", "decode_rows", "decode_lengths")
    BEAMS_FIELD_NUMBER: _ClassVar[int]
    DECODE_ROWS_FIELD_NUMBER: _ClassVar[int]
    DECODE_LENGTHS_FIELD_NUMBER: _ClassVar[int]
    beams: int
    decode_rows: _containers.RepeatedScalarFieldContainer[int]
    decode_lengths: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, beams: _Optional[int] = ..., decode_rows: _Optional[_Iterable[int]] = ..., decode_lengths: _Optional[_Iterable[int]] = ...) -> None: ...

class TranscriptSettings(_message.Message):
    __slots__ = ("window_seconds", "mel_bands", "language_token_ids", "task_token_ids", "end_token_id", "start_token_id", "previous_token_id", "no_speech_token_id", "no_timestamps_token_id", "last_initial_timestamp_token_id", "suppressed_token_ids", "begin_suppressed_token_ids")
    class LanguageTokenIdsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class TaskTokenIdsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    WINDOW_SECONDS_FIELD_NUMBER: _ClassVar[int]
    MEL_BANDS_FIELD_NUMBER: _ClassVar[int]
    LANGUAGE_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    TASK_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    END_TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    START_TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    NO_SPEECH_TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    NO_TIMESTAMPS_TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_INITIAL_TIMESTAMP_TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    SUPPRESSED_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    BEGIN_SUPPRESSED_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    window_seconds: float
    mel_bands: int
    language_token_ids: _containers.ScalarMap[str, int]
    task_token_ids: _containers.ScalarMap[str, int]
    end_token_id: int
    start_token_id: int
    previous_token_id: int
    no_speech_token_id: int
    no_timestamps_token_id: int
    last_initial_timestamp_token_id: int
    suppressed_token_ids: _containers.RepeatedScalarFieldContainer[int]
    begin_suppressed_token_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, window_seconds: _Optional[float] = ..., mel_bands: _Optional[int] = ..., language_token_ids: _Optional[_Mapping[str, int]] = ..., task_token_ids: _Optional[_Mapping[str, int]] = ..., end_token_id: _Optional[int] = ..., start_token_id: _Optional[int] = ..., previous_token_id: _Optional[int] = ..., no_speech_token_id: _Optional[int] = ..., no_timestamps_token_id: _Optional[int] = ..., last_initial_timestamp_token_id: _Optional[int] = ..., suppressed_token_ids: _Optional[_Iterable[int]] = ..., begin_suppressed_token_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class TensorSpec(_message.Message):
    __slots__ = ("name", "dtype", "shape")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    name: str
    dtype: _inference_pb2.DataType
    shape: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, name: _Optional[str] = ..., dtype: _Optional[_Union[_inference_pb2.DataType, str]] = ..., shape: _Optional[_Iterable[int]] = ...) -> None: ...

class Axis(_message.Message):
    __slots__ = ("name", "inputs", "outputs", "ladder")
    class InputsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class OutputsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    LADDER_FIELD_NUMBER: _ClassVar[int]
    name: str
    inputs: _containers.ScalarMap[str, int]
    outputs: _containers.ScalarMap[str, int]
    ladder: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, name: _Optional[str] = ..., inputs: _Optional[_Mapping[str, int]] = ..., outputs: _Optional[_Mapping[str, int]] = ..., ladder: _Optional[_Iterable[int]] = ...) -> None: ...

class CallSpec(_message.Message):
    __slots__ = ("inputs", "outputs", "batch", "axes", "compiled", "labels")
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    AXES_FIELD_NUMBER: _ClassVar[int]
    COMPILED_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    inputs: _containers.RepeatedCompositeFieldContainer[TensorSpec]
    outputs: _containers.RepeatedCompositeFieldContainer[TensorSpec]
    batch: Axis
    axes: _containers.RepeatedCompositeFieldContainer[Axis]
    compiled: bool
    labels: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, inputs: _Optional[_Iterable[_Union[TensorSpec, _Mapping]]] = ..., outputs: _Optional[_Iterable[_Union[TensorSpec, _Mapping]]] = ..., batch: _Optional[_Union[Axis, _Mapping]] = ..., axes: _Optional[_Iterable[_Union[Axis, _Mapping]]] = ..., compiled: bool = ..., labels: _Optional[_Iterable[str]] = ...) -> None: ...

class Model(_message.Message):
    __slots__ = ("name", "family", "tokenizer", "characters_per_token", "vocab_size", "max_length", "default_options", "dtype", "parameters", "weight_bytes", "kv_cache_bytes", "kv_cache_bytes_per_token", "slots", "ladders", "ready_workers", "kind", "max_source_length", "encoder_weight_bytes", "decoder_start_token_id", "transcripts", "weight_dtype", "kernels", "call", "revision", "targets", "token_types", "text_prompt", "lowercases_text", "default_max_length", "default_min_length")
    NAME_FIELD_NUMBER: _ClassVar[int]
    FAMILY_FIELD_NUMBER: _ClassVar[int]
    TOKENIZER_FIELD_NUMBER: _ClassVar[int]
    CHARACTERS_PER_TOKEN_FIELD_NUMBER: _ClassVar[int]
    VOCAB_SIZE_FIELD_NUMBER: _ClassVar[int]
    MAX_LENGTH_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_OPTIONS_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_BYTES_FIELD_NUMBER: _ClassVar[int]
    KV_CACHE_BYTES_FIELD_NUMBER: _ClassVar[int]
    KV_CACHE_BYTES_PER_TOKEN_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    LADDERS_FIELD_NUMBER: _ClassVar[int]
    READY_WORKERS_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    MAX_SOURCE_LENGTH_FIELD_NUMBER: _ClassVar[int]
    ENCODER_WEIGHT_BYTES_FIELD_NUMBER: _ClassVar[int]
    DECODER_START_TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    TRANSCRIPTS_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_DTYPE_FIELD_NUMBER: _ClassVar[int]
    KERNELS_FIELD_NUMBER: _ClassVar[int]
    CALL_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_TYPES_FIELD_NUMBER: _ClassVar[int]
    TEXT_PROMPT_FIELD_NUMBER: _ClassVar[int]
    LOWERCASES_TEXT_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_MAX_LENGTH_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_MIN_LENGTH_FIELD_NUMBER: _ClassVar[int]
    name: str
    family: str
    tokenizer: str
    characters_per_token: int
    vocab_size: int
    max_length: int
    default_options: _generation_pb2.GenerationOptions
    dtype: str
    parameters: int
    weight_bytes: int
    kv_cache_bytes: int
    kv_cache_bytes_per_token: int
    slots: int
    ladders: Ladders
    ready_workers: int
    kind: ModelKind
    max_source_length: int
    encoder_weight_bytes: int
    decoder_start_token_id: int
    transcripts: TranscriptSettings
    weight_dtype: str
    kernels: str
    call: CallSpec
    revision: str
    targets: _containers.RepeatedCompositeFieldContainer[Target]
    token_types: int
    text_prompt: str
    lowercases_text: bool
    default_max_length: int
    default_min_length: int
    def __init__(self, name: _Optional[str] = ..., family: _Optional[str] = ..., tokenizer: _Optional[str] = ..., characters_per_token: _Optional[int] = ..., vocab_size: _Optional[int] = ..., max_length: _Optional[int] = ..., default_options: _Optional[_Union[_generation_pb2.GenerationOptions, _Mapping]] = ..., dtype: _Optional[str] = ..., parameters: _Optional[int] = ..., weight_bytes: _Optional[int] = ..., kv_cache_bytes: _Optional[int] = ..., kv_cache_bytes_per_token: _Optional[int] = ..., slots: _Optional[int] = ..., ladders: _Optional[_Union[Ladders, _Mapping]] = ..., ready_workers: _Optional[int] = ..., kind: _Optional[_Union[ModelKind, str]] = ..., max_source_length: _Optional[int] = ..., encoder_weight_bytes: _Optional[int] = ..., decoder_start_token_id: _Optional[int] = ..., transcripts: _Optional[_Union[TranscriptSettings, _Mapping]] = ..., weight_dtype: _Optional[str] = ..., kernels: _Optional[str] = ..., call: _Optional[_Union[CallSpec, _Mapping]] = ..., revision: _Optional[str] = ..., targets: _Optional[_Iterable[_Union[Target, _Mapping]]] = ..., token_types: _Optional[int] = ..., text_prompt: _Optional[str] = ..., lowercases_text: bool = ..., default_max_length: _Optional[int] = ..., default_min_length: _Optional[int] = ...) -> None: ...
