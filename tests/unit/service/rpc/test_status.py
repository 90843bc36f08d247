"""Errors as gRPC statuses with their details."""

import asyncio
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from google.protobuf.message import Message
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc import StatusCode, aio

from shaperouter_service import errors
from shaperouter_service.errors import (
    CallFailedError,
    ClientLimitError,
    Code,
    DeadlinePassedError,
    DeadlineTooShortError,
    DeadlyRequestError,
    ExhaustedError,
    FixedModelsError,
    GraphFailedError,
    GraphRefusedError,
    InvalidRequestError,
    LogprobMemoryError,
    MemoryLimitError,
    ModelLoadingError,
    ModelNotLoadedError,
    ModelUnloadingError,
    NotOperatorError,
    NoWorkerInTimeError,
    OtherChangeError,
    OtherRevisionError,
    OverloadedError,
    QueueFullError,
    RecordingMemoryError,
    RelayedError,
    RevisionGoneError,
    ServiceError,
    StillLoadingError,
    StoppingError,
    TensorMemoryError,
    TextQueueFullError,
    TooManyCallsError,
    UnauthenticatedError,
    UnknownModelError,
    UnknownVersionError,
    Violation,
    WorkerLostError,
)
from shaperouter_service.rpc.status import abort, from_call, to_status

VIOLATIONS = (
    Violation(field="options.temperature", description="must be above 0, got -1"),
    Violation(field="options.seed", description="must be from 0, got -2"),
)

# Error, code, reason, seconds after which to try again, what the message must name.
ERRORS: list[tuple[ServiceError, int, str, float | None, list[str]]] = [
    (
        InvalidRequestError(*VIOLATIONS),
        code_pb2.INVALID_ARGUMENT,
        "INVALID_REQUEST",
        None,
        ["options.temperature", "got -1", "options.seed", "got -2"],
    ),
    (
        UnknownModelError("gpt3", ["demo", "gpt2"]),
        code_pb2.NOT_FOUND,
        "UNKNOWN_MODEL",
        None,
        ["gpt3", "demo, gpt2"],
    ),
    (
        UnknownVersionError("gpt2", "3"),
        code_pb2.NOT_FOUND,
        "UNKNOWN_VERSION",
        None,
        ["gpt2", "only version 1", "'3'"],
    ),
    (
        CallFailedError("sums", "matrix sizes do not fit" + 1000 * "."),
        code_pb2.INTERNAL,
        "CALL_FAILED",
        None,
        ["sums failed", "matrix sizes", "1023 characters"],
    ),
    (
        StillLoadingError("gpt2", "worker-0 has read 3 of 9 files"),
        code_pb2.DEADLINE_EXCEEDED,
        "MODEL_STILL_LOADING",
        None,
        ["gpt2", "before the deadline", "3 of 9 files"],
    ),
    (
        FixedModelsError(),
        code_pb2.FAILED_PRECONDITION,
        "FIXED_MODELS",
        None,
        ["loaded or unloaded", "--model"],
    ),
    (
        ModelNotLoadedError("gpt2", "worker-0: no memory"),
        code_pb2.FAILED_PRECONDITION,
        "MODEL_NOT_LOADED",
        None,
        ["gpt2 was not loaded", "nothing has changed", "worker-0: no memory"],
    ),
    (
        ModelUnloadingError("gpt2"),
        code_pb2.RESOURCE_EXHAUSTED,
        "MODEL_UNLOADING",
        1.0,
        ["gpt2 is being unloaded"],
    ),
    (OtherChangeError("gpt2"), code_pb2.ABORTED, "OTHER_CHANGE", None, ["gpt2", "another call"]),
    (
        OtherRevisionError("gpt2", "abc", "def"),
        code_pb2.FAILED_PRECONDITION,
        "OTHER_REVISION",
        None,
        ["gpt2 began", "abc", "def"],
    ),
    (
        RevisionGoneError("gpt2"),
        code_pb2.UNAVAILABLE,
        "REVISION_GONE",
        0.5,
        ["revision of gpt2", "send the request again"],
    ),
    (ModelLoadingError("gpt2"), code_pb2.UNAVAILABLE, "MODEL_LOADING", 1.0, ["gpt2"]),
    (
        TextQueueFullError(1000),
        code_pb2.RESOURCE_EXHAUSTED,
        "TEXT_QUEUE_FULL",
        1.0,
        ["limit 1000 characters"],
    ),
    (
        TextQueueFullError(500, of_client=True),
        code_pb2.RESOURCE_EXHAUSTED,
        "TEXT_QUEUE_FULL",
        1.0,
        ["limit 500 characters of one client"],
    ),
    (
        RecordingMemoryError(1000),
        code_pb2.RESOURCE_EXHAUSTED,
        "RECORDING_MEMORY_FULL",
        1.0,
        ["limit 1000 bytes"],
    ),
    (
        RecordingMemoryError(500, of_client=True),
        code_pb2.RESOURCE_EXHAUSTED,
        "RECORDING_MEMORY_FULL",
        1.0,
        ["limit 500 bytes of one client"],
    ),
    (
        TensorMemoryError(1000),
        code_pb2.RESOURCE_EXHAUSTED,
        "TENSOR_MEMORY_FULL",
        1.0,
        ["tensors", "limit 1000 bytes"],
    ),
    (
        LogprobMemoryError(1000),
        code_pb2.RESOURCE_EXHAUSTED,
        "LOGPROB_MEMORY_FULL",
        1.0,
        ["log-probabilities", "limit 1000 bytes"],
    ),
    (
        ExhaustedError("memory"),
        code_pb2.RESOURCE_EXHAUSTED,
        "PROCESS_EXHAUSTED",
        1.0,
        ["no memory left"],
    ),
    (
        QueueFullError("gpt2", 256),
        code_pb2.RESOURCE_EXHAUSTED,
        "QUEUE_FULL",
        1.0,
        ["gpt2", "256"],
    ),
    (
        TooManyCallsError(4096),
        code_pb2.RESOURCE_EXHAUSTED,
        "TOO_MANY_CALLS",
        1.0,
        ["4096 calls", "again"],
    ),
    (
        OverloadedError("gpt2", 12.5, 10.0),
        code_pb2.RESOURCE_EXHAUSTED,
        "OVERLOADED",
        2.5,
        ["gpt2", "12.5 s", "limit 10 s"],
    ),
    (
        DeadlineTooShortError("gpt2", queue=1.5, compilation=4.0, device=7.0, left=3.0),
        code_pb2.DEADLINE_EXCEEDED,
        "DEADLINE_TOO_SHORT",
        None,
        ["gpt2", "12.5 s", "queue 1.5 s", "compilation 4 s", "device 7 s", "in 3 s"],
    ),
    (
        GraphRefusedError("gpt2 decode 4x256", "mode frozen"),
        code_pb2.FAILED_PRECONDITION,
        "GRAPH_REFUSED",
        None,
        ["gpt2 decode 4x256", "mode frozen"],
    ),
    (
        UnauthenticatedError(has_token=False),
        code_pb2.UNAUTHENTICATED,
        "MISSING_TOKEN",
        None,
        ["authorization", "missing", "Bearer"],
    ),
    (
        UnauthenticatedError(has_token=True),
        code_pb2.UNAUTHENTICATED,
        "UNKNOWN_TOKEN",
        None,
        ["authorization", "not known", "Bearer"],
    ),
    (
        NotOperatorError("search"),
        code_pb2.PERMISSION_DENIED,
        "NOT_OPERATOR",
        None,
        ["search", "not an operator"],
    ),
    (
        ClientLimitError("search", "4 requests in flight", retry_after=1.5),
        code_pb2.RESOURCE_EXHAUSTED,
        "CLIENT_LIMIT",
        1.5,
        ["search", "4 requests in flight"],
    ),
    (StoppingError(), code_pb2.UNAVAILABLE, "STOPPING", 0.5, ["being stopped"]),
    (WorkerLostError("worker-3"), code_pb2.UNAVAILABLE, "WORKER_LOST", 0.5, ["worker-3"]),
    (
        DeadlyRequestError("r-7", lost=4, isolated=2),
        code_pb2.INTERNAL,
        "DEADLY_REQUEST",
        None,
        ["request r-7", "4 workers", "last 2", "do not send it again"],
    ),
    (
        NoWorkerInTimeError("gpt2", was_loaded=False),
        code_pb2.DEADLINE_EXCEEDED,
        "NO_WORKER_IN_TIME",
        None,
        ["gpt2", "the service is starting"],
    ),
    (
        DeadlinePassedError("gpt2", "4 s in the queue for a slot"),
        code_pb2.DEADLINE_EXCEEDED,
        "DEADLINE_PASSED",
        None,
        ["gpt2", "the request waited 4 s in the queue"],
    ),
    (
        GraphFailedError("gpt2 decode 4x256", "no memory"),
        code_pb2.INTERNAL,
        "GRAPH_FAILED",
        None,
        ["gpt2 decode 4x256", "no memory"],
    ),
]
BY_NAME = pytest.mark.parametrize(
    ("error", "code", "reason", "retry_after", "named"),
    ERRORS,
    ids=[type(error).__name__ for error, *_ in ERRORS],
)


def details(status: status_pb2.Status, kind: type[Message]) -> list[Any]:
    found = []
    for packed in status.details:
        message = kind()
        if packed.Unpack(message):
            found.append(message)
    return found


def test_every_error_is_in_the_table() -> None:
    # Errors of one protocol are defined with it.
    own = {each for each in ServiceError.__subclasses__() if each.__module__ == errors.__name__}
    own |= {*MemoryLimitError.__subclasses__()}
    assert {type(error) for error, *_ in ERRORS} == own - {RelayedError, MemoryLimitError}


@BY_NAME
def test_status_code(
    error: ServiceError, code: int, reason: str, retry_after: float | None, named: list[str]
) -> None:
    del reason, retry_after, named
    assert to_status(error).code == code


def test_the_page_of_errors_has_each_reason_with_its_status() -> None:
    page = Path(__file__).parents[4] / "docs" / "errors.md"
    listed = re.findall(r"^\| `(\w+)` \| (\w+) \|", page.read_text(encoding="utf-8"), re.M)
    assert set(listed) == {(error.reason, error.code.name) for error, *_ in ERRORS}


@BY_NAME
def test_error_info_has_the_reason(
    error: ServiceError, code: int, reason: str, retry_after: float | None, named: list[str]
) -> None:
    del code, retry_after, named
    (info,) = details(to_status(error), error_details_pb2.ErrorInfo)
    assert (info.reason, info.domain) == (reason, "shaperouter")


@BY_NAME
def test_retry_info_is_present_if_a_retry_helps(
    error: ServiceError, code: int, reason: str, retry_after: float | None, named: list[str]
) -> None:
    del code, reason, named
    delays = [
        info.retry_delay.ToTimedelta().total_seconds()
        for info in details(to_status(error), error_details_pb2.RetryInfo)
    ]
    assert delays == ([] if retry_after is None else [retry_after])


@BY_NAME
def test_the_message_names_the_limits_and_values(
    error: ServiceError, code: int, reason: str, retry_after: float | None, named: list[str]
) -> None:
    del code, reason, retry_after
    message = to_status(error).message
    assert [name for name in named if name not in message] == []


def test_bad_request_lists_every_violation() -> None:
    (bad_request,) = details(
        to_status(InvalidRequestError(*VIOLATIONS)), error_details_pb2.BadRequest
    )
    assert [(v.field, v.description) for v in bad_request.field_violations] == [
        (v.field, v.description) for v in VIOLATIONS
    ]


def test_many_violations_fit_into_a_header() -> None:
    many = [Violation(field=f"inputs.{n}", description=200 * "x") for n in range(1000)]
    status = to_status(InvalidRequestError(*many))
    (bad_request,) = details(status, error_details_pb2.BadRequest)
    assert bad_request.field_violations[0].field == "inputs.0"
    assert status.message.endswith("and 992 more")
    assert status.ByteSize() < 6000


def test_only_invalid_requests_carry_bad_request() -> None:
    others = [error for error, *_ in ERRORS if not isinstance(error, InvalidRequestError)]
    assert not any(details(to_status(e), error_details_pb2.BadRequest) for e in others)


def failed_call(code: StatusCode, message: str, *metadata: tuple[str, bytes]) -> aio.AioRpcError:
    return aio.AioRpcError(code, aio.Metadata(), aio.Metadata(*metadata), details=message)


@pytest.mark.parametrize(
    "error", [QueueFullError("gpt2", 4), InvalidRequestError(*VIOLATIONS)], ids=["full", "invalid"]
)
def test_a_failed_call_keeps_the_workers_status(error: ServiceError) -> None:
    status = to_status(error)
    (code,) = (code for code in StatusCode if code.value[0] == status.code)
    relayed = from_call(
        failed_call(code, status.message, ("grpc-status-details-bin", status.SerializeToString()))
    )
    assert to_status(relayed) == status
    assert (relayed.code, str(relayed)) == (error.code, str(error))


def test_a_failed_call_without_details_keeps_code_and_message() -> None:
    relayed = from_call(failed_call(StatusCode.INTERNAL, "it broke"))
    assert (relayed.code, str(relayed)) == (Code.INTERNAL, "it broke")


class Context:
    """A call's context that records the status of an abort."""

    def __init__(self, *trailing_metadata: tuple[str, str]) -> None:
        self._trailing_metadata = trailing_metadata
        self.sent: tuple[Any, ...] = ()

    def trailing_metadata(self) -> Any:
        return self._trailing_metadata

    async def abort(self, *sent: Any) -> None:
        self.sent = sent


def test_abort_sends_code_message_and_details() -> None:
    error = QueueFullError("gpt2", 4)
    context: Any = Context()
    asyncio.run(abort(context, error))
    code, message, metadata = context.sent
    assert (code, message) == (StatusCode.RESOURCE_EXHAUSTED, str(error))
    ((key, value),) = metadata
    assert key == "grpc-status-details-bin"
    assert status_pb2.Status.FromString(value) == to_status(error)


def test_abort_keeps_the_trailing_metadata() -> None:
    context: Any = Context(("x-request-id", "7"))
    asyncio.run(abort(context, QueueFullError("gpt2", 4)))
    _, _, metadata = context.sent
    assert ("x-request-id", "7") in metadata


@pytest.mark.parametrize(
    "error",
    [
        UnknownModelError("x", [f"a-model-with-a-long-name-{index}" for index in range(300)]),
        CallFailedError("m", "\N{SNOWMAN}" * 3000),
        InvalidRequestError(
            *(
                Violation(field=f"inputs.{index}", description="\N{SNOWMAN}" * 100)
                for index in range(50)
            )
        ),
    ],
)
def test_any_error_fits_into_a_trailer(error: ServiceError) -> None:
    status = to_status(error, "an-id")
    # The message is percent-encoded, and the details are in base64. gRPC allows 8 KB for certain.
    assert len(quote(status.message, safe=" ")) + 4 * status.ByteSize() / 3 < 8192
    assert status.message.startswith(str(error)[:100])
