"""Client of Shaperouter, the service that runs Hugging Face generation models with TensorFlow/XLA.

A first call::

    from shaperouter import Client

    with Client("127.0.0.1:50051") as client:
        print(client.generate("TensorFlow is", max_new_tokens=40).text)

`Client` blocks; `AsyncClient` does the same with asyncio. Both raise `ShaperouterError` and its
subclasses. The generated stubs that they use can be imported as ``shaperouter.v1.*_pb2`` and
``shaperouter.v1.*_pb2_grpc``.
"""

import os

# gRPC's C core writes lines of its own to standard error. The errors that calls raise say the same.
# gRPC reads this variable when it is imported.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

from shaperouter._async_client import AsyncClient
from shaperouter._async_streams import (
    AsyncGenerationStream,
    AsyncGraphStream,
    AsyncTranscriptionStream,
)
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
    PromptsError,
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
from shaperouter._inference import (
    CallMetadata,
    Classification,
    Embeddings,
    Inference,
    RankedDocument,
)
from shaperouter._model import (
    Axis,
    CallSpec,
    DataType,
    Ladders,
    LaneLadders,
    Model,
    ModelKind,
    TensorSpec,
)
from shaperouter._options import GenerationOptions
from shaperouter._signature import GraphKind, Signature
from shaperouter._streams import GenerationStream, GraphStream, TranscriptionStream
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
from shaperouter._version import __version__

__all__ = [
    "AsyncClient",
    "AsyncGenerationStream",
    "AsyncGraphStream",
    "AsyncTranscriptionStream",
    "AudioFormat",
    "Axis",
    "CallCancelledError",
    "CallMetadata",
    "CallSpec",
    "Classification",
    "Client",
    "DataType",
    "DeadlineError",
    "Delta",
    "DetectedLanguage",
    "Embeddings",
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
    "Inference",
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
    "PromptsError",
    "RankedDocument",
    "Route",
    "RouteOption",
    "ShaperouterError",
    "Signature",
    "TensorSpec",
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
