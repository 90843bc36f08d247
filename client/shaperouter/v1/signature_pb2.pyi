from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GraphKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    GRAPH_KIND_UNSPECIFIED: _ClassVar[GraphKind]
    GRAPH_KIND_PREFILL: _ClassVar[GraphKind]
    GRAPH_KIND_DECODE: _ClassVar[GraphKind]
    GRAPH_KIND_ENCODE: _ClassVar[GraphKind]
    GRAPH_KIND_ALIGN: _ClassVar[GraphKind]
    GRAPH_KIND_CALL: _ClassVar[GraphKind]
    GRAPH_KIND_SCORE: _ClassVar[GraphKind]
GRAPH_KIND_UNSPECIFIED: GraphKind
GRAPH_KIND_PREFILL: GraphKind
GRAPH_KIND_DECODE: GraphKind
GRAPH_KIND_ENCODE: GraphKind
GRAPH_KIND_ALIGN: GraphKind
GRAPH_KIND_CALL: GraphKind
GRAPH_KIND_SCORE: GraphKind

class Signature(_message.Message):
    __slots__ = ("model", "kind", "rows", "length", "beams", "further", "exact")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    BEAMS_FIELD_NUMBER: _ClassVar[int]
    FURTHER_FIELD_NUMBER: _ClassVar[int]
    EXACT_FIELD_NUMBER: _ClassVar[int]
    model: str
    kind: GraphKind
    rows: int
    length: int
    beams: int
    further: _containers.RepeatedScalarFieldContainer[int]
    exact: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, model: _Optional[str] = ..., kind: _Optional[_Union[GraphKind, str]] = ..., rows: _Optional[int] = ..., length: _Optional[int] = ..., beams: _Optional[int] = ..., further: _Optional[_Iterable[int]] = ..., exact: _Optional[_Iterable[int]] = ...) -> None: ...
