from shaperouter.v1 import signature_pb2 as _signature_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GraphState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    GRAPH_STATE_UNSPECIFIED: _ClassVar[GraphState]
    GRAPH_STATE_COLD: _ClassVar[GraphState]
    GRAPH_STATE_TRACING: _ClassVar[GraphState]
    GRAPH_STATE_COMPILING: _ClassVar[GraphState]
    GRAPH_STATE_READY: _ClassVar[GraphState]
    GRAPH_STATE_FAILED: _ClassVar[GraphState]
    GRAPH_STATE_QUEUED: _ClassVar[GraphState]
GRAPH_STATE_UNSPECIFIED: GraphState
GRAPH_STATE_COLD: GraphState
GRAPH_STATE_TRACING: GraphState
GRAPH_STATE_COMPILING: GraphState
GRAPH_STATE_READY: GraphState
GRAPH_STATE_FAILED: GraphState
GRAPH_STATE_QUEUED: GraphState

class ListGraphsRequest(_message.Message):
    __slots__ = ("model", "include_cold")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_COLD_FIELD_NUMBER: _ClassVar[int]
    model: str
    include_cold: bool
    def __init__(self, model: _Optional[str] = ..., include_cold: bool = ...) -> None: ...

class ListGraphsResponse(_message.Message):
    __slots__ = ("graphs",)
    GRAPHS_FIELD_NUMBER: _ClassVar[int]
    graphs: _containers.RepeatedCompositeFieldContainer[Graph]
    def __init__(self, graphs: _Optional[_Iterable[_Union[Graph, _Mapping]]] = ...) -> None: ...

class WatchGraphsRequest(_message.Message):
    __slots__ = ("model", "include_cold")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_COLD_FIELD_NUMBER: _ClassVar[int]
    model: str
    include_cold: bool
    def __init__(self, model: _Optional[str] = ..., include_cold: bool = ...) -> None: ...

class WatchGraphsResponse(_message.Message):
    __slots__ = ("graphs",)
    GRAPHS_FIELD_NUMBER: _ClassVar[int]
    graphs: _containers.RepeatedCompositeFieldContainer[Graph]
    def __init__(self, graphs: _Optional[_Iterable[_Union[Graph, _Mapping]]] = ...) -> None: ...

class WarmGraphsRequest(_message.Message):
    __slots__ = ("signatures", "workers", "all_workers")
    SIGNATURES_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    ALL_WORKERS_FIELD_NUMBER: _ClassVar[int]
    signatures: _containers.RepeatedCompositeFieldContainer[_signature_pb2.Signature]
    workers: _containers.RepeatedScalarFieldContainer[str]
    all_workers: bool
    def __init__(self, signatures: _Optional[_Iterable[_Union[_signature_pb2.Signature, _Mapping]]] = ..., workers: _Optional[_Iterable[str]] = ..., all_workers: bool = ...) -> None: ...

class WarmGraphsResponse(_message.Message):
    __slots__ = ("graphs",)
    GRAPHS_FIELD_NUMBER: _ClassVar[int]
    graphs: _containers.RepeatedCompositeFieldContainer[Graph]
    def __init__(self, graphs: _Optional[_Iterable[_Union[Graph, _Mapping]]] = ...) -> None: ...

class Histogram(_message.Message):
    __slots__ = ("bounds", "counts", "sum")
    BOUNDS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    SUM_FIELD_NUMBER: _ClassVar[int]
    bounds: _containers.RepeatedScalarFieldContainer[float]
    counts: _containers.RepeatedScalarFieldContainer[int]
    sum: float
    def __init__(self, bounds: _Optional[_Iterable[float]] = ..., counts: _Optional[_Iterable[int]] = ..., sum: _Optional[float] = ...) -> None: ...

class Graph(_message.Message):
    __slots__ = ("signature", "worker", "state", "traces", "compiles", "failures", "trace_seconds", "compile_seconds", "stall_seconds", "device_seconds", "error", "loads", "load_seconds", "step_seconds", "missed_seconds", "padded_seconds", "state_seconds", "retry_seconds", "recent_missed_seconds", "recent_served_seconds", "make_seconds", "would_save_seconds", "left_seconds", "before_ready", "overhead_seconds")
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    TRACES_FIELD_NUMBER: _ClassVar[int]
    COMPILES_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    TRACE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    COMPILE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    STALL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    DEVICE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LOADS_FIELD_NUMBER: _ClassVar[int]
    LOAD_SECONDS_FIELD_NUMBER: _ClassVar[int]
    STEP_SECONDS_FIELD_NUMBER: _ClassVar[int]
    MISSED_SECONDS_FIELD_NUMBER: _ClassVar[int]
    PADDED_SECONDS_FIELD_NUMBER: _ClassVar[int]
    STATE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    RETRY_SECONDS_FIELD_NUMBER: _ClassVar[int]
    RECENT_MISSED_SECONDS_FIELD_NUMBER: _ClassVar[int]
    RECENT_SERVED_SECONDS_FIELD_NUMBER: _ClassVar[int]
    MAKE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    WOULD_SAVE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    LEFT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    BEFORE_READY_FIELD_NUMBER: _ClassVar[int]
    OVERHEAD_SECONDS_FIELD_NUMBER: _ClassVar[int]
    signature: _signature_pb2.Signature
    worker: str
    state: GraphState
    traces: int
    compiles: int
    failures: int
    trace_seconds: float
    compile_seconds: Histogram
    stall_seconds: Histogram
    device_seconds: Histogram
    error: str
    loads: int
    load_seconds: float
    step_seconds: float
    missed_seconds: float
    padded_seconds: float
    state_seconds: float
    retry_seconds: float
    recent_missed_seconds: float
    recent_served_seconds: float
    make_seconds: float
    would_save_seconds: float
    left_seconds: float
    before_ready: bool
    overhead_seconds: float
    def __init__(self, signature: _Optional[_Union[_signature_pb2.Signature, _Mapping]] = ..., worker: _Optional[str] = ..., state: _Optional[_Union[GraphState, str]] = ..., traces: _Optional[int] = ..., compiles: _Optional[int] = ..., failures: _Optional[int] = ..., trace_seconds: _Optional[float] = ..., compile_seconds: _Optional[_Union[Histogram, _Mapping]] = ..., stall_seconds: _Optional[_Union[Histogram, _Mapping]] = ..., device_seconds: _Optional[_Union[Histogram, _Mapping]] = ..., error: _Optional[str] = ..., loads: _Optional[int] = ..., load_seconds: _Optional[float] = ..., step_seconds: _Optional[float] = ..., missed_seconds: _Optional[float] = ..., padded_seconds: _Optional[float] = ..., state_seconds: _Optional[float] = ..., retry_seconds: _Optional[float] = ..., recent_missed_seconds: _Optional[float] = ..., recent_served_seconds: _Optional[float] = ..., make_seconds: _Optional[float] = ..., would_save_seconds: _Optional[float] = ..., left_seconds: _Optional[float] = ..., before_ready: bool = ..., overhead_seconds: _Optional[float] = ...) -> None: ...
