from shaperouter.v1 import generation_pb2 as _generation_pb2
from shaperouter.v1 import graph_pb2 as _graph_pb2
from shaperouter.v1 import inference_pb2 as _inference_pb2
from shaperouter.v1 import model_pb2 as _model_pb2
from shaperouter.v1 import signature_pb2 as _signature_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RevisionState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REVISION_STATE_UNSPECIFIED: _ClassVar[RevisionState]
    REVISION_STATE_LOADING: _ClassVar[RevisionState]
    REVISION_STATE_READY: _ClassVar[RevisionState]
    REVISION_STATE_FAILED: _ClassVar[RevisionState]

class CompileMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COMPILE_MODE_UNSPECIFIED: _ClassVar[CompileMode]
    COMPILE_MODE_LAZY: _ClassVar[CompileMode]
    COMPILE_MODE_WARM: _ClassVar[CompileMode]
    COMPILE_MODE_FROZEN: _ClassVar[CompileMode]
REVISION_STATE_UNSPECIFIED: RevisionState
REVISION_STATE_LOADING: RevisionState
REVISION_STATE_READY: RevisionState
REVISION_STATE_FAILED: RevisionState
COMPILE_MODE_UNSPECIFIED: CompileMode
COMPILE_MODE_LAZY: CompileMode
COMPILE_MODE_WARM: CompileMode
COMPILE_MODE_FROZEN: CompileMode

class RunsRequest(_message.Message):
    __slots__ = ("started", "cancelled_run_ids", "events_used")
    STARTED_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_RUN_IDS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_USED_FIELD_NUMBER: _ClassVar[int]
    started: _containers.RepeatedCompositeFieldContainer[RunStart]
    cancelled_run_ids: _containers.RepeatedScalarFieldContainer[int]
    events_used: _containers.RepeatedCompositeFieldContainer[EventsUsed]
    def __init__(self, started: _Optional[_Iterable[_Union[RunStart, _Mapping]]] = ..., cancelled_run_ids: _Optional[_Iterable[int]] = ..., events_used: _Optional[_Iterable[_Union[EventsUsed, _Mapping]]] = ...) -> None: ...

class RunStart(_message.Message):
    __slots__ = ("run_id", "request", "timeout_seconds", "trace_context")
    class TraceContextEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    TRACE_CONTEXT_FIELD_NUMBER: _ClassVar[int]
    run_id: int
    request: RunRequest
    timeout_seconds: float
    trace_context: _containers.ScalarMap[str, str]
    def __init__(self, run_id: _Optional[int] = ..., request: _Optional[_Union[RunRequest, _Mapping]] = ..., timeout_seconds: _Optional[float] = ..., trace_context: _Optional[_Mapping[str, str]] = ...) -> None: ...

class EventsUsed(_message.Message):
    __slots__ = ("run_id", "events")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    run_id: int
    events: int
    def __init__(self, run_id: _Optional[int] = ..., events: _Optional[int] = ...) -> None: ...

class RunsResponse(_message.Message):
    __slots__ = ("updates",)
    UPDATES_FIELD_NUMBER: _ClassVar[int]
    updates: _containers.RepeatedCompositeFieldContainer[RunUpdate]
    def __init__(self, updates: _Optional[_Iterable[_Union[RunUpdate, _Mapping]]] = ...) -> None: ...

class RunUpdate(_message.Message):
    __slots__ = ("run_id", "event", "error_status")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    ERROR_STATUS_FIELD_NUMBER: _ClassVar[int]
    run_id: int
    event: RunResponse
    error_status: bytes
    def __init__(self, run_id: _Optional[int] = ..., event: _Optional[_Union[RunResponse, _Mapping]] = ..., error_status: _Optional[bytes] = ...) -> None: ...

class RunRequest(_message.Message):
    __slots__ = ("request_id", "model", "token_ids", "options", "generated_token_ids", "client", "lane_beams", "tokens_interval_seconds", "resumed", "source_token_ids", "sound", "alignment", "suspect", "grammar", "scored_tokens", "prefix_scope", "revision", "continues_text")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    GENERATED_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    LANE_BEAMS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_INTERVAL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    RESUMED_FIELD_NUMBER: _ClassVar[int]
    SOURCE_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    SOUND_FIELD_NUMBER: _ClassVar[int]
    ALIGNMENT_FIELD_NUMBER: _ClassVar[int]
    SUSPECT_FIELD_NUMBER: _ClassVar[int]
    GRAMMAR_FIELD_NUMBER: _ClassVar[int]
    SCORED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PREFIX_SCOPE_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    CONTINUES_TEXT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    model: str
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    options: RunOptions
    generated_token_ids: _containers.RepeatedScalarFieldContainer[int]
    client: str
    lane_beams: int
    tokens_interval_seconds: float
    resumed: bool
    source_token_ids: _containers.RepeatedScalarFieldContainer[int]
    sound: Sound
    alignment: Alignment
    suspect: bool
    grammar: str
    scored_tokens: int
    prefix_scope: str
    revision: str
    continues_text: bool
    def __init__(self, request_id: _Optional[str] = ..., model: _Optional[str] = ..., token_ids: _Optional[_Iterable[int]] = ..., options: _Optional[_Union[RunOptions, _Mapping]] = ..., generated_token_ids: _Optional[_Iterable[int]] = ..., client: _Optional[str] = ..., lane_beams: _Optional[int] = ..., tokens_interval_seconds: _Optional[float] = ..., resumed: bool = ..., source_token_ids: _Optional[_Iterable[int]] = ..., sound: _Optional[_Union[Sound, _Mapping]] = ..., alignment: _Optional[_Union[Alignment, _Mapping]] = ..., suspect: bool = ..., grammar: _Optional[str] = ..., scored_tokens: _Optional[int] = ..., prefix_scope: _Optional[str] = ..., revision: _Optional[str] = ..., continues_text: bool = ...) -> None: ...

class Sound(_message.Message):
    __slots__ = ("numbers", "places")
    NUMBERS_FIELD_NUMBER: _ClassVar[int]
    PLACES_FIELD_NUMBER: _ClassVar[int]
    numbers: bytes
    places: int
    def __init__(self, numbers: _Optional[bytes] = ..., places: _Optional[int] = ...) -> None: ...

class Alignment(_message.Message):
    __slots__ = ("prefix_tokens",)
    PREFIX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    prefix_tokens: int
    def __init__(self, prefix_tokens: _Optional[int] = ...) -> None: ...

class TranscriptRules(_message.Message):
    __slots__ = ("first_timestamp", "last_initial_timestamp", "begin_suppressed", "least_first", "largest_first", "no_speech", "no_speech_place")
    FIRST_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    LAST_INITIAL_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    BEGIN_SUPPRESSED_FIELD_NUMBER: _ClassVar[int]
    LEAST_FIRST_FIELD_NUMBER: _ClassVar[int]
    LARGEST_FIRST_FIELD_NUMBER: _ClassVar[int]
    NO_SPEECH_FIELD_NUMBER: _ClassVar[int]
    NO_SPEECH_PLACE_FIELD_NUMBER: _ClassVar[int]
    first_timestamp: int
    last_initial_timestamp: int
    begin_suppressed: _containers.RepeatedScalarFieldContainer[int]
    least_first: int
    largest_first: int
    no_speech: int
    no_speech_place: int
    def __init__(self, first_timestamp: _Optional[int] = ..., last_initial_timestamp: _Optional[int] = ..., begin_suppressed: _Optional[_Iterable[int]] = ..., least_first: _Optional[int] = ..., largest_first: _Optional[int] = ..., no_speech: _Optional[int] = ..., no_speech_place: _Optional[int] = ...) -> None: ...

class RunOptions(_message.Message):
    __slots__ = ("max_new_tokens", "do_sample", "temperature", "seed", "eos_token_ids", "top_k", "top_p", "min_p", "typical_p", "repetition_penalty", "no_repeat_ngram_size", "min_new_tokens", "num_beams", "num_return_sequences", "length_penalty", "early_stopping", "biases", "logprobs", "transcript", "stop", "prompt_logprobs", "further")
    MAX_NEW_TOKENS_FIELD_NUMBER: _ClassVar[int]
    DO_SAMPLE_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    EOS_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    MIN_P_FIELD_NUMBER: _ClassVar[int]
    TYPICAL_P_FIELD_NUMBER: _ClassVar[int]
    REPETITION_PENALTY_FIELD_NUMBER: _ClassVar[int]
    NO_REPEAT_NGRAM_SIZE_FIELD_NUMBER: _ClassVar[int]
    MIN_NEW_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_BEAMS_FIELD_NUMBER: _ClassVar[int]
    NUM_RETURN_SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    LENGTH_PENALTY_FIELD_NUMBER: _ClassVar[int]
    EARLY_STOPPING_FIELD_NUMBER: _ClassVar[int]
    BIASES_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    TRANSCRIPT_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    PROMPT_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    FURTHER_FIELD_NUMBER: _ClassVar[int]
    max_new_tokens: int
    do_sample: bool
    temperature: float
    seed: int
    eos_token_ids: _containers.RepeatedScalarFieldContainer[int]
    top_k: int
    top_p: float
    min_p: float
    typical_p: float
    repetition_penalty: float
    no_repeat_ngram_size: int
    min_new_tokens: int
    num_beams: int
    num_return_sequences: int
    length_penalty: float
    early_stopping: _generation_pb2.EarlyStopping
    biases: _containers.RepeatedCompositeFieldContainer[SequenceBias]
    logprobs: int
    transcript: TranscriptRules
    stop: _containers.RepeatedScalarFieldContainer[str]
    prompt_logprobs: int
    further: _generation_pb2.GenerationOptions
    def __init__(self, max_new_tokens: _Optional[int] = ..., do_sample: bool = ..., temperature: _Optional[float] = ..., seed: _Optional[int] = ..., eos_token_ids: _Optional[_Iterable[int]] = ..., top_k: _Optional[int] = ..., top_p: _Optional[float] = ..., min_p: _Optional[float] = ..., typical_p: _Optional[float] = ..., repetition_penalty: _Optional[float] = ..., no_repeat_ngram_size: _Optional[int] = ..., min_new_tokens: _Optional[int] = ..., num_beams: _Optional[int] = ..., num_return_sequences: _Optional[int] = ..., length_penalty: _Optional[float] = ..., early_stopping: _Optional[_Union[_generation_pb2.EarlyStopping, str]] = ..., biases: _Optional[_Iterable[_Union[SequenceBias, _Mapping]]] = ..., logprobs: _Optional[int] = ..., transcript: _Optional[_Union[TranscriptRules, _Mapping]] = ..., stop: _Optional[_Iterable[str]] = ..., prompt_logprobs: _Optional[int] = ..., further: _Optional[_Union[_generation_pb2.GenerationOptions, _Mapping]] = ...) -> None: ...

class SequenceBias(_message.Message):
    __slots__ = ("token_ids", "bias")
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    BIAS_FIELD_NUMBER: _ClassVar[int]
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    bias: float
    def __init__(self, token_ids: _Optional[_Iterable[int]] = ..., bias: _Optional[float] = ...) -> None: ...

class RunResponse(_message.Message):
    __slots__ = ("stall", "tokens", "completion", "isolated", "prompt_logprobs")
    STALL_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_FIELD_NUMBER: _ClassVar[int]
    ISOLATED_FIELD_NUMBER: _ClassVar[int]
    PROMPT_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    stall: _generation_pb2.Stall
    tokens: RunTokens
    completion: RunCompletion
    isolated: Isolated
    prompt_logprobs: _generation_pb2.PromptLogprobs
    def __init__(self, stall: _Optional[_Union[_generation_pb2.Stall, _Mapping]] = ..., tokens: _Optional[_Union[RunTokens, _Mapping]] = ..., completion: _Optional[_Union[RunCompletion, _Mapping]] = ..., isolated: _Optional[_Union[Isolated, _Mapping]] = ..., prompt_logprobs: _Optional[_Union[_generation_pb2.PromptLogprobs, _Mapping]] = ...) -> None: ...

class Isolated(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RunTokens(_message.Message):
    __slots__ = ("token_ids", "logprobs", "input_usage")
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    INPUT_USAGE_FIELD_NUMBER: _ClassVar[int]
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    logprobs: _containers.RepeatedCompositeFieldContainer[_generation_pb2.TokenLogprobs]
    input_usage: InputUsage
    def __init__(self, token_ids: _Optional[_Iterable[int]] = ..., logprobs: _Optional[_Iterable[_Union[_generation_pb2.TokenLogprobs, _Mapping]]] = ..., input_usage: _Optional[_Union[InputUsage, _Mapping]] = ...) -> None: ...

class InputUsage(_message.Message):
    __slots__ = ("padded_prompt_tokens", "padded_source_tokens", "cached_prompt_tokens")
    PADDED_PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PADDED_SOURCE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    padded_prompt_tokens: int
    padded_source_tokens: int
    cached_prompt_tokens: int
    def __init__(self, padded_prompt_tokens: _Optional[int] = ..., padded_source_tokens: _Optional[int] = ..., cached_prompt_tokens: _Optional[int] = ...) -> None: ...

class Hypothesis(_message.Message):
    __slots__ = ("token_ids", "finish_reason", "score", "logprobs")
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    finish_reason: _generation_pb2.FinishReason
    score: float
    logprobs: _containers.RepeatedCompositeFieldContainer[_generation_pb2.TokenLogprobs]
    def __init__(self, token_ids: _Optional[_Iterable[int]] = ..., finish_reason: _Optional[_Union[_generation_pb2.FinishReason, str]] = ..., score: _Optional[float] = ..., logprobs: _Optional[_Iterable[_Union[_generation_pb2.TokenLogprobs, _Mapping]]] = ...) -> None: ...

class RunCompletion(_message.Message):
    __slots__ = ("finish_reason", "padded_prompt_tokens", "queue_seconds", "stall_seconds", "prefill_seconds", "decode_seconds", "graphs", "hypotheses", "padded_source_tokens", "no_speech_probability", "aligned", "cached_prompt_tokens")
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    PADDED_PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    STALL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    PREFILL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    DECODE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    GRAPHS_FIELD_NUMBER: _ClassVar[int]
    HYPOTHESES_FIELD_NUMBER: _ClassVar[int]
    PADDED_SOURCE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NO_SPEECH_PROBABILITY_FIELD_NUMBER: _ClassVar[int]
    ALIGNED_FIELD_NUMBER: _ClassVar[int]
    CACHED_PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    finish_reason: _generation_pb2.FinishReason
    padded_prompt_tokens: int
    queue_seconds: float
    stall_seconds: float
    prefill_seconds: float
    decode_seconds: float
    graphs: _containers.RepeatedCompositeFieldContainer[_generation_pb2.GraphUse]
    hypotheses: _containers.RepeatedCompositeFieldContainer[Hypothesis]
    padded_source_tokens: int
    no_speech_probability: float
    aligned: AlignedTokens
    cached_prompt_tokens: int
    def __init__(self, finish_reason: _Optional[_Union[_generation_pb2.FinishReason, str]] = ..., padded_prompt_tokens: _Optional[int] = ..., queue_seconds: _Optional[float] = ..., stall_seconds: _Optional[float] = ..., prefill_seconds: _Optional[float] = ..., decode_seconds: _Optional[float] = ..., graphs: _Optional[_Iterable[_Union[_generation_pb2.GraphUse, _Mapping]]] = ..., hypotheses: _Optional[_Iterable[_Union[Hypothesis, _Mapping]]] = ..., padded_source_tokens: _Optional[int] = ..., no_speech_probability: _Optional[float] = ..., aligned: _Optional[_Union[AlignedTokens, _Mapping]] = ..., cached_prompt_tokens: _Optional[int] = ...) -> None: ...

class AlignedTokens(_message.Message):
    __slots__ = ("places", "logprobs")
    PLACES_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    places: _containers.RepeatedScalarFieldContainer[int]
    logprobs: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, places: _Optional[_Iterable[int]] = ..., logprobs: _Optional[_Iterable[float]] = ...) -> None: ...

class CallRequest(_message.Message):
    __slots__ = ("request_id", "client", "model", "inputs", "outputs", "suspect")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    SUSPECT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    client: str
    model: str
    inputs: _containers.RepeatedCompositeFieldContainer[_inference_pb2.Tensor]
    outputs: _containers.RepeatedScalarFieldContainer[str]
    suspect: bool
    def __init__(self, request_id: _Optional[str] = ..., client: _Optional[str] = ..., model: _Optional[str] = ..., inputs: _Optional[_Iterable[_Union[_inference_pb2.Tensor, _Mapping]]] = ..., outputs: _Optional[_Iterable[str]] = ..., suspect: bool = ...) -> None: ...

class CallResponse(_message.Message):
    __slots__ = ("outputs", "queue_seconds", "stall_seconds", "device_seconds", "graphs")
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    STALL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    DEVICE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    GRAPHS_FIELD_NUMBER: _ClassVar[int]
    outputs: _containers.RepeatedCompositeFieldContainer[_inference_pb2.Tensor]
    queue_seconds: float
    stall_seconds: float
    device_seconds: float
    graphs: _containers.RepeatedCompositeFieldContainer[_generation_pb2.GraphUse]
    def __init__(self, outputs: _Optional[_Iterable[_Union[_inference_pb2.Tensor, _Mapping]]] = ..., queue_seconds: _Optional[float] = ..., stall_seconds: _Optional[float] = ..., device_seconds: _Optional[float] = ..., graphs: _Optional[_Iterable[_Union[_generation_pb2.GraphUse, _Mapping]]] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("router",)
    ROUTER_FIELD_NUMBER: _ClassVar[int]
    router: str
    def __init__(self, router: _Optional[str] = ...) -> None: ...

class WatchResponse(_message.Message):
    __slots__ = ("worker", "incarnation", "device", "models", "graphs", "lanes", "compile_queue_depth", "warm", "budget", "start", "call_queues", "prefixes", "deployments", "revisions")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    GRAPHS_FIELD_NUMBER: _ClassVar[int]
    LANES_FIELD_NUMBER: _ClassVar[int]
    COMPILE_QUEUE_DEPTH_FIELD_NUMBER: _ClassVar[int]
    WARM_FIELD_NUMBER: _ClassVar[int]
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    CALL_QUEUES_FIELD_NUMBER: _ClassVar[int]
    PREFIXES_FIELD_NUMBER: _ClassVar[int]
    DEPLOYMENTS_FIELD_NUMBER: _ClassVar[int]
    REVISIONS_FIELD_NUMBER: _ClassVar[int]
    worker: str
    incarnation: str
    device: str
    models: _containers.RepeatedCompositeFieldContainer[_model_pb2.Model]
    graphs: _containers.RepeatedCompositeFieldContainer[_graph_pb2.Graph]
    lanes: _containers.RepeatedCompositeFieldContainer[Lane]
    compile_queue_depth: int
    warm: bool
    budget: CompileBudget
    start: StartTimes
    call_queues: _containers.RepeatedCompositeFieldContainer[CallQueue]
    prefixes: _containers.RepeatedCompositeFieldContainer[PrefixCache]
    deployments: _containers.RepeatedCompositeFieldContainer[Deployment]
    revisions: _containers.RepeatedCompositeFieldContainer[RevisionReport]
    def __init__(self, worker: _Optional[str] = ..., incarnation: _Optional[str] = ..., device: _Optional[str] = ..., models: _Optional[_Iterable[_Union[_model_pb2.Model, _Mapping]]] = ..., graphs: _Optional[_Iterable[_Union[_graph_pb2.Graph, _Mapping]]] = ..., lanes: _Optional[_Iterable[_Union[Lane, _Mapping]]] = ..., compile_queue_depth: _Optional[int] = ..., warm: bool = ..., budget: _Optional[_Union[CompileBudget, _Mapping]] = ..., start: _Optional[_Union[StartTimes, _Mapping]] = ..., call_queues: _Optional[_Iterable[_Union[CallQueue, _Mapping]]] = ..., prefixes: _Optional[_Iterable[_Union[PrefixCache, _Mapping]]] = ..., deployments: _Optional[_Iterable[_Union[Deployment, _Mapping]]] = ..., revisions: _Optional[_Iterable[_Union[RevisionReport, _Mapping]]] = ...) -> None: ...

class PrefixCache(_message.Message):
    __slots__ = ("model", "bytes", "hit_tokens", "evictions", "blocks")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    HIT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    EVICTIONS_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    model: str
    bytes: int
    hit_tokens: int
    evictions: int
    blocks: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, model: _Optional[str] = ..., bytes: _Optional[int] = ..., hit_tokens: _Optional[int] = ..., evictions: _Optional[int] = ..., blocks: _Optional[_Iterable[int]] = ...) -> None: ...

class Revision(_message.Message):
    __slots__ = ("model", "digest", "location", "share")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    LOCATION_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    model: str
    digest: str
    location: str
    share: float
    def __init__(self, model: _Optional[str] = ..., digest: _Optional[str] = ..., location: _Optional[str] = ..., share: _Optional[float] = ...) -> None: ...

class Deployment(_message.Message):
    __slots__ = ("name", "version", "revisions", "everywhere", "targets", "on_demand")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    REVISIONS_FIELD_NUMBER: _ClassVar[int]
    EVERYWHERE_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    ON_DEMAND_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: int
    revisions: _containers.RepeatedCompositeFieldContainer[Revision]
    everywhere: bool
    targets: _containers.RepeatedCompositeFieldContainer[_model_pb2.Target]
    on_demand: bool
    def __init__(self, name: _Optional[str] = ..., version: _Optional[int] = ..., revisions: _Optional[_Iterable[_Union[Revision, _Mapping]]] = ..., everywhere: bool = ..., targets: _Optional[_Iterable[_Union[_model_pb2.Target, _Mapping]]] = ..., on_demand: bool = ...) -> None: ...

class RevisionReport(_message.Message):
    __slots__ = ("model", "state", "error", "progress", "idle_seconds")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    IDLE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    model: str
    state: RevisionState
    error: str
    progress: str
    idle_seconds: float
    def __init__(self, model: _Optional[str] = ..., state: _Optional[_Union[RevisionState, str]] = ..., error: _Optional[str] = ..., progress: _Optional[str] = ..., idle_seconds: _Optional[float] = ...) -> None: ...

class DeployRequest(_message.Message):
    __slots__ = ("router", "deployments", "held")
    ROUTER_FIELD_NUMBER: _ClassVar[int]
    DEPLOYMENTS_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    router: str
    deployments: _containers.RepeatedCompositeFieldContainer[Deployment]
    held: _containers.RepeatedCompositeFieldContainer[Revision]
    def __init__(self, router: _Optional[str] = ..., deployments: _Optional[_Iterable[_Union[Deployment, _Mapping]]] = ..., held: _Optional[_Iterable[_Union[Revision, _Mapping]]] = ...) -> None: ...

class DeployResponse(_message.Message):
    __slots__ = ("deployments",)
    DEPLOYMENTS_FIELD_NUMBER: _ClassVar[int]
    deployments: _containers.RepeatedCompositeFieldContainer[Deployment]
    def __init__(self, deployments: _Optional[_Iterable[_Union[Deployment, _Mapping]]] = ...) -> None: ...

class StartTimes(_message.Message):
    __slots__ = ("import_seconds", "weights_seconds", "first_cover_seconds", "warm_seconds")
    IMPORT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_SECONDS_FIELD_NUMBER: _ClassVar[int]
    FIRST_COVER_SECONDS_FIELD_NUMBER: _ClassVar[int]
    WARM_SECONDS_FIELD_NUMBER: _ClassVar[int]
    import_seconds: float
    weights_seconds: float
    first_cover_seconds: float
    warm_seconds: float
    def __init__(self, import_seconds: _Optional[float] = ..., weights_seconds: _Optional[float] = ..., first_cover_seconds: _Optional[float] = ..., warm_seconds: _Optional[float] = ...) -> None: ...

class CompileBudget(_message.Message):
    __slots__ = ("mode", "room", "max_graphs", "memory_bytes", "max_memory_bytes", "threads", "exhausted")
    MODE_FIELD_NUMBER: _ClassVar[int]
    ROOM_FIELD_NUMBER: _ClassVar[int]
    MAX_GRAPHS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    THREADS_FIELD_NUMBER: _ClassVar[int]
    EXHAUSTED_FIELD_NUMBER: _ClassVar[int]
    mode: CompileMode
    room: int
    max_graphs: int
    memory_bytes: int
    max_memory_bytes: int
    threads: int
    exhausted: bool
    def __init__(self, mode: _Optional[_Union[CompileMode, str]] = ..., room: _Optional[int] = ..., max_graphs: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., max_memory_bytes: _Optional[int] = ..., threads: _Optional[int] = ..., exhausted: bool = ...) -> None: ...

class WantRequest(_message.Message):
    __slots__ = ("signatures",)
    SIGNATURES_FIELD_NUMBER: _ClassVar[int]
    signatures: _containers.RepeatedCompositeFieldContainer[_signature_pb2.Signature]
    def __init__(self, signatures: _Optional[_Iterable[_Union[_signature_pb2.Signature, _Mapping]]] = ...) -> None: ...

class WantResponse(_message.Message):
    __slots__ = ("refused",)
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    refused: _containers.RepeatedCompositeFieldContainer[RefusedGraph]
    def __init__(self, refused: _Optional[_Iterable[_Union[RefusedGraph, _Mapping]]] = ...) -> None: ...

class RefusedGraph(_message.Message):
    __slots__ = ("signature", "reason")
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    signature: _signature_pb2.Signature
    reason: str
    def __init__(self, signature: _Optional[_Union[_signature_pb2.Signature, _Mapping]] = ..., reason: _Optional[str] = ...) -> None: ...

class Lane(_message.Message):
    __slots__ = ("model", "beams", "active_slots", "total_slots", "queued", "backlog_tokens", "backlog_prompt_tokens", "backlog_prompts", "backlog_source_tokens", "backlog_sources", "prefill_padding_tokens", "encode_padding_tokens", "decode_padding_tokens", "align_padding_tokens", "score_padding_tokens", "proposed_tokens", "accepted_tokens", "draft_proposed_tokens", "draft_accepted_tokens")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    BEAMS_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_SLOTS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_SLOTS_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_TOKENS_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_PROMPTS_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_SOURCE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_SOURCES_FIELD_NUMBER: _ClassVar[int]
    PREFILL_PADDING_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ENCODE_PADDING_TOKENS_FIELD_NUMBER: _ClassVar[int]
    DECODE_PADDING_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ALIGN_PADDING_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SCORE_PADDING_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PROPOSED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    DRAFT_PROPOSED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    DRAFT_ACCEPTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    model: str
    beams: int
    active_slots: int
    total_slots: int
    queued: int
    backlog_tokens: int
    backlog_prompt_tokens: int
    backlog_prompts: int
    backlog_source_tokens: int
    backlog_sources: int
    prefill_padding_tokens: int
    encode_padding_tokens: int
    decode_padding_tokens: int
    align_padding_tokens: int
    score_padding_tokens: int
    proposed_tokens: int
    accepted_tokens: int
    draft_proposed_tokens: int
    draft_accepted_tokens: int
    def __init__(self, model: _Optional[str] = ..., beams: _Optional[int] = ..., active_slots: _Optional[int] = ..., total_slots: _Optional[int] = ..., queued: _Optional[int] = ..., backlog_tokens: _Optional[int] = ..., backlog_prompt_tokens: _Optional[int] = ..., backlog_prompts: _Optional[int] = ..., backlog_source_tokens: _Optional[int] = ..., backlog_sources: _Optional[int] = ..., prefill_padding_tokens: _Optional[int] = ..., encode_padding_tokens: _Optional[int] = ..., decode_padding_tokens: _Optional[int] = ..., align_padding_tokens: _Optional[int] = ..., score_padding_tokens: _Optional[int] = ..., proposed_tokens: _Optional[int] = ..., accepted_tokens: _Optional[int] = ..., draft_proposed_tokens: _Optional[int] = ..., draft_accepted_tokens: _Optional[int] = ...) -> None: ...

class CallQueue(_message.Message):
    __slots__ = ("model", "calls", "rows", "elements", "padding_elements", "padding_checks", "padding_differences")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    ELEMENTS_FIELD_NUMBER: _ClassVar[int]
    PADDING_ELEMENTS_FIELD_NUMBER: _ClassVar[int]
    PADDING_CHECKS_FIELD_NUMBER: _ClassVar[int]
    PADDING_DIFFERENCES_FIELD_NUMBER: _ClassVar[int]
    model: str
    calls: int
    rows: int
    elements: int
    padding_elements: int
    padding_checks: int
    padding_differences: int
    def __init__(self, model: _Optional[str] = ..., calls: _Optional[int] = ..., rows: _Optional[int] = ..., elements: _Optional[int] = ..., padding_elements: _Optional[int] = ..., padding_checks: _Optional[int] = ..., padding_differences: _Optional[int] = ...) -> None: ...
