"""Conversion of errors to gRPC statuses with `google.rpc` details, and back."""

from collections.abc import Iterable, Iterator
from typing import Any, NoReturn
from urllib.parse import quote

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from grpc import aio
from grpc_status import rpc_status

from shaperouter_service.errors import (
    Code,
    RelayedError,
    ServiceError,
    Violation,
    shortened,
)

DOMAIN = "shaperouter"
# Key of the trailing metadata that names the request.
REQUEST_ID_KEY = "x-request-id"
# Maximum bytes of an error in a trailer: of its message, and of that with all details. gRPC allows
# 8 KB of metadata.
_MESSAGE_BYTES, _ERROR_BYTES = 2000, 7000
# What gRPC does not percent-encode in a message.
_SAFE = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
_DETAILS_KEY = "grpc-status-details-bin"
_GRPC_CODES = {code: grpc.StatusCode[code.name] for code in Code}


def to_status(error: ServiceError, request_id: str = "") -> status_pb2.Status:
    """Describes an error with ErrorInfo, BadRequest, RetryInfo and RequestInfo, where they apply.

    Args:
        error: The error.
        request_id: Id of the call that failed; empty if it has none.
    """
    message = _cut(str(error))
    details: list[Message] = []
    # A worker's error may come from gRPC itself; such errors have no reason.
    if error.reason:
        details.append(error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN))
    if error.violations:
        violations = [
            error_details_pb2.BadRequest.FieldViolation(field=v.field, description=v.description)
            for v in _that_fit(error.violations, message)
        ]
        details.append(error_details_pb2.BadRequest(field_violations=violations))
    if error.retry_after is not None:
        delay = Duration()
        delay.FromNanoseconds(round(error.retry_after * 1e9))
        details.append(error_details_pb2.RetryInfo(retry_delay=delay))
    if request_id:
        details.append(error_details_pb2.RequestInfo(request_id=request_id))
    status = status_pb2.Status(code=error.code, message=message)
    for detail in details:
        status.details.add().Pack(detail)
    return status


def _cut(message: str) -> str:
    """A message that fits into a trailer, and says how long it was."""
    if len(_quoted(message)) <= _MESSAGE_BYTES:
        return message
    left, kept = _MESSAGE_BYTES, 0
    for character in message:
        left -= len(_quoted(character))
        if left < 0:
            break
        kept += 1
    return shortened(message, kept)


def _that_fit(violations: Iterable[Violation], message: str) -> Iterator[Violation]:
    """The first violations, as many as a trailer has room for beside the message.

    It has the message twice: percent-encoded, and in the details, which are in base64.
    """
    left = _ERROR_BYTES - len(_quoted(message)) - _in_base64(message)
    for violation in violations:
        left -= _in_base64(violation.field + violation.description)
        if left < 0:
            return
        yield violation


def _quoted(text: str) -> str:
    """A text as gRPC sends it in a header."""
    return quote(text, safe=_SAFE)


def _in_base64(text: str) -> int:
    """Bytes of a text in base64."""
    return len(text.encode()) * 4 // 3


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
