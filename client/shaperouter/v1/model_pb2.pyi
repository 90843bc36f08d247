from shaperouter.v1 import generation_pb2 as _generation_pb2
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
MODEL_KIND_UNSPECIFIED: ModelKind
MODEL_KIND_DECODER: ModelKind
MODEL_KIND_ENCODER_DECODER: ModelKind

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

class GetModelResponse(_message.Message):
    __slots__ = ("model",)
    MODEL_FIELD_NUMBER: _ClassVar[int]
    model: Model
    def __init__(self, model: _Optional[_Union[Model, _Mapping]] = ...) -> None: ...

class Ladders(_message.Message):
    __slots__ = ("prefill_lengths", "lanes", "prefill_rows", "prefill_batch_tokens", "prefill_piece", "encode_lengths", "encode_rows", "encode_batch_tokens", "has_whole_source")
    PREFILL_LENGTHS_FIELD_NUMBER: _ClassVar[int]
    LANES_FIELD_NUMBER: _ClassVar[int]
    PREFILL_ROWS_FIELD_NUMBER: _ClassVar[int]
    PREFILL_BATCH_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PREFILL_PIECE_FIELD_NUMBER: _ClassVar[int]
    ENCODE_LENGTHS_FIELD_NUMBER: _ClassVar[int]
    ENCODE_ROWS_FIELD_NUMBER: _ClassVar[int]
    ENCODE_BATCH_TOKENS_FIELD_NUMBER: _ClassVar[int]
    HAS_WHOLE_SOURCE_FIELD_NUMBER: _ClassVar[int]
    prefill_lengths: _containers.RepeatedScalarFieldContainer[int]
    lanes: _containers.RepeatedCompositeFieldContainer[LaneLadders]
    prefill_rows: _containers.RepeatedScalarFieldContainer[int]
    prefill_batch_tokens: int
    prefill_piece: int
    encode_lengths: _containers.RepeatedScalarFieldContainer[int]
    encode_rows: _containers.RepeatedScalarFieldContainer[int]
    encode_batch_tokens: int
    has_whole_source: bool
    def __init__(self, prefill_lengths: _Optional[_Iterable[int]] = ..., lanes: _Optional[_Iterable[_Union[LaneLadders, _Mapping]]] = ..., prefill_rows: _Optional[_Iterable[int]] = ..., prefill_batch_tokens: _Optional[int] = ..., prefill_piece: _Optional[int] = ..., encode_lengths: _Optional[_Iterable[int]] = ..., encode_rows: _Optional[_Iterable[int]] = ..., encode_batch_tokens: _Optional[int] = ..., has_whole_source: bool = ...) -> None: ...

class LaneLadders(_message.Message):
    __slots__ = ("beams", "decode_rows", "decode_lengths")
    BEAMS_FIELD_NUMBER: _ClassVar[int]
    DECODE_ROWS_FIELD_NUMBER: _ClassVar[int]
    DECODE_LENGTHS_FIELD_NUMBER: _ClassVar[int]
    beams: int
    decode_rows: _containers.RepeatedScalarFieldContainer[int]
    decode_lengths: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, beams: _Optional[int] = ..., decode_rows: _Optional[_Iterable[int]] = ..., decode_lengths: _Optional[_Iterable[int]] = ...) -> None: ...

class Model(_message.Message):
    __slots__ = ("name", "family", "tokenizer", "vocab_size", "max_length", "default_options", "dtype", "parameters", "weight_bytes", "kv_cache_bytes", "kv_cache_bytes_per_token", "slots", "ladders", "ready_workers", "kind", "max_source_length", "encoder_weight_bytes", "decoder_start_token_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    FAMILY_FIELD_NUMBER: _ClassVar[int]
    TOKENIZER_FIELD_NUMBER: _ClassVar[int]
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
    name: str
    family: str
    tokenizer: str
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
    def __init__(self, name: _Optional[str] = ..., family: _Optional[str] = ..., tokenizer: _Optional[str] = ..., vocab_size: _Optional[int] = ..., max_length: _Optional[int] = ..., default_options: _Optional[_Union[_generation_pb2.GenerationOptions, _Mapping]] = ..., dtype: _Optional[str] = ..., parameters: _Optional[int] = ..., weight_bytes: _Optional[int] = ..., kv_cache_bytes: _Optional[int] = ..., kv_cache_bytes_per_token: _Optional[int] = ..., slots: _Optional[int] = ..., ladders: _Optional[_Union[Ladders, _Mapping]] = ..., ready_workers: _Optional[int] = ..., kind: _Optional[_Union[ModelKind, str]] = ..., max_source_length: _Optional[int] = ..., encoder_weight_bytes: _Optional[int] = ..., decoder_start_token_id: _Optional[int] = ...) -> None: ...
