"""Client of Shaperouter, the service that runs Hugging Face generation models with TensorFlow/XLA.

A first call::

    from shaperouter import Client

    with Client("127.0.0.1:50051") as client:
        print(client.generate("TensorFlow is", max_new_tokens=40).text)

`Client` blocks, `AsyncClient` is its asyncio twin; both raise the errors of `ShaperouterError`'s
tree. The generated stubs below them are importable as ``shaperouter.v1.*_pb2`` and
``shaperouter.v1.*_pb2_grpc``.
"""

from shaperouter._async_client import AsyncClient
from shaperouter._async_graph_stream import AsyncGraphStream
from shaperouter._async_stream import AsyncGenerationStream
from shaperouter._async_transcription_stream import AsyncTranscriptionStream
from shaperouter._client import Client
from shaperouter._errors import (
    CallCancelledError,
    DeadlineError,
    FieldViolation,
    InternalError,
    InvalidArgumentError,
    MessageTooLargeError,
    ModelNotFoundError,
    OverloadedError,
    PermissionDeniedError,
    ShaperouterError,
    UnauthenticatedError,
    UnavailableError,
)
from shaperouter._generation import (
    Delta,
    FinishReason,
    GeneratedSequence,
    Generation,
    GraphUse,
    Route,
    RouteOption,
    Timings,
    TokenLogprob,
    TokenLogprobs,
    Usage,
)
from shaperouter._graph import Graph, GraphState, Histogram
from shaperouter._graph_stream import GraphStream
from shaperouter._model import Ladders, LaneLadders, Model, ModelKind
from shaperouter._options import GenerationOptions
from shaperouter._signature import GraphKind, Signature
from shaperouter._stream import GenerationStream
from shaperouter._transcription import (
    AudioFormat,
    DetectedLanguage,
    TranscribedSegment,
    TranscribedWord,
    Transcription,
    TranscriptionProgress,
    TranscriptionTask,
)
from shaperouter._transcription_options import TranscriptionOptions
from shaperouter._transcription_stream import TranscriptionStream
from shaperouter._version import __version__

__all__ = [
    "AsyncClient",
    "AsyncGenerationStream",
    "AsyncGraphStream",
    "AsyncTranscriptionStream",
    "AudioFormat",
    "CallCancelledError",
    "Client",
    "DeadlineError",
    "Delta",
    "DetectedLanguage",
    "FieldViolation",
    "FinishReason",
    "GeneratedSequence",
    "Generation",
    "GenerationOptions",
    "GenerationStream",
    "Graph",
    "GraphKind",
    "GraphState",
    "GraphStream",
    "GraphUse",
    "Histogram",
    "InternalError",
    "InvalidArgumentError",
    "Ladders",
    "LaneLadders",
    "MessageTooLargeError",
    "Model",
    "ModelKind",
    "ModelNotFoundError",
    "OverloadedError",
    "PermissionDeniedError",
    "Route",
    "RouteOption",
    "ShaperouterError",
    "Signature",
    "Timings",
    "TokenLogprob",
    "TokenLogprobs",
    "TranscribedSegment",
    "TranscribedWord",
    "Transcription",
    "TranscriptionOptions",
    "TranscriptionProgress",
    "TranscriptionStream",
    "TranscriptionTask",
    "UnauthenticatedError",
    "UnavailableError",
    "Usage",
    "__version__",
]
