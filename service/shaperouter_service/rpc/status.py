"""Conversion of errors to gRPC statuses with `google.rpc` details, and back."""

from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from grpc import aio
from grpc_status import rpc_status

from shaperouter_service.errors import Code, RelayedError, ServiceError, Violation

DOMAIN = "shaperouter"
# Key of the trailing metadata that names the request.
REQUEST_ID_KEY = "x-request-id"
# Maximum characters of all violations in an error's details.
_VIOLATION_CHARACTERS = 3000
_DETAILS_KEY = "grpc-status-details-bin"
_GRPC_CODES = {code: grpc.StatusCode[code.name] for code in Code}


def to_status(error: ServiceError, request_id: str = "") -> status_pb2.Status:
    """Describes an error with ErrorInfo, BadRequest, RetryInfo and RequestInfo, where they apply.

    Args:
        error: The error.
        request_id: Id of the call that failed; empty if it has none.
    """
    details: list[Message] = []
    # A worker's error may come from gRPC itself; such errors have no reason.
    if error.reason:
        details.append(error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN))
    if error.violations:
        violations = [
            error_details_pb2.BadRequest.FieldViolation(field=v.field, description=v.description)
            for v in _that_fit(error.violations)
        ]
        details.append(error_details_pb2.BadRequest(field_violations=violations))
    if error.retry_after is not None:
        delay = Duration()
        delay.FromNanoseconds(round(error.retry_after * 1e9))
        details.append(error_details_pb2.RetryInfo(retry_delay=delay))
    if request_id:
        details.append(error_details_pb2.RequestInfo(request_id=request_id))
    status = status_pb2.Status(code=error.code, message=str(error))
    for detail in details:
        status.details.add().Pack(detail)
    return status


def _that_fit(violations: Iterable[Violation]) -> Iterator[Violation]:
    """The first violations, as many as a header of 8 KB has room for beside the message."""
    left = _VIOLATION_CHARACTERS
    for violation in violations:
        left -= len(violation.field) + len(violation.description)
        if left < 0:
            return
        yield violation


def from_call(error: aio.AioRpcError) -> RelayedError:
    """Converts the error of a call to a worker."""
    code = Code(error.code().value[0])
    status = rpc_status.from_call(error)
    if status is None:
        return RelayedError(code, error.details() or "")
    return from_status(status)


def from_status(status: status_pb2.Status) -> RelayedError:
    """Converts a worker's error."""
    info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    retry = error_details_pb2.RetryInfo()
    has_retry = False
    for detail in status.details:
        has_retry |= detail.Unpack(retry)
        _ = detail.Unpack(info) or detail.Unpack(bad)
    return RelayedError(
        Code(status.code),
        status.message,
        reason=info.reason,
        violations=[
            Violation(field=v.field, description=v.description) for v in bad.field_violations
        ],
        retry_after=retry.retry_delay.ToNanoseconds() / 1e9 if has_retry else None,
    )


def request_id_of(context: aio.ServicerContext[Any, Any]) -> str:
    """The request id in a call's trailing metadata; empty if there is none."""
    return str(dict(context.trailing_metadata() or ()).get(REQUEST_ID_KEY, ""))


async def abort(context: aio.ServicerContext[Any, Any], error: ServiceError) -> NoReturn:
    """Ends a call with an error; does not return."""
    status = to_status(error, request_id_of(context))
    metadata = (*(context.trailing_metadata() or ()), (_DETAILS_KEY, status.SerializeToString()))
    if error.deadly:
        # Stops gRPC's automatic retries; callers may still retry.
        metadata = (*metadata, ("grpc-retry-pushback-ms", "-1"))
    await context.abort(_GRPC_CODES[error.code], status.message, metadata)
