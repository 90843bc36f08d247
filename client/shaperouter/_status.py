"""From the status of a failed call to the client's errors."""

import re
from collections.abc import Iterable, Iterator
from typing import TypeVar, cast

import grpc
from google.protobuf.message import DecodeError, Message
from google.rpc import error_details_pb2, status_pb2

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

_REQUEST_ID_KEY = "x-request-id"
_STATUS_KEY = "grpc-status-details-bin"

# What gRPC says where one end takes the other's first words for none, or does not trust it.
_HANDSHAKE = re.compile(r"Socket closed|[Hh]andshake|SSL_|[Vv]erification [Cc]heck")

# What gRPC says of calls that this side has cancelled, or whose channel it has closed.
_CANCELLED_HERE = re.compile(r"Locally cancelled|Channel closed")

_Detail = TypeVar("_Detail", bound=Message)


def error_of(  # noqa: PLR0911 (one for each error)
    error: grpc.RpcError, *, address: str, deadline: float | None
) -> ShaperouterError:
    """The client's error for a call that failed.

    Args:
        error: What gRPC raised, of either of its two APIs.
        address: Where the call went.
        deadline: Seconds the call had; None for no limit.
    """
    code = error.code()
    details = error.details() or ""
    status = _status(error)
    request_id = _request_id(error)
    match code:
        case grpc.StatusCode.INVALID_ARGUMENT:
            violations = tuple(_violations(status))
            return InvalidArgumentError(
                _with_violations(details, violations),
                violations=violations,
                request_id=request_id,
            )
        case grpc.StatusCode.UNAUTHENTICATED:
            return UnauthenticatedError(details, code=code, request_id=request_id)
        case grpc.StatusCode.PERMISSION_DENIED:
            return PermissionDeniedError(details, code=code, request_id=request_id)
        case grpc.StatusCode.NOT_FOUND:
            return ModelNotFoundError(details, code=code, request_id=request_id)
        case grpc.StatusCode.RESOURCE_EXHAUSTED if "larger than max" in details:
            return MessageTooLargeError(
                f"a message is over gRPC's limit of its size: {details}",
                code=code,
                request_id=request_id,
            )
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            return OverloadedError(details, retry_after=_retry_after(status), request_id=request_id)
        case grpc.StatusCode.UNAVAILABLE:
            return UnavailableError(
                _unavailable(details, address),
                retry_after=_retry_after(status),
                request_id=request_id,
            )
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return DeadlineError(_deadline(details, deadline), code=code, request_id=request_id)
        case grpc.StatusCode.CANCELLED if _CANCELLED_HERE.search(details):
            return cancelled()
        case grpc.StatusCode.CANCELLED:
            # What gRPC says to calls that meet a server in the moment it stops.
            return UnavailableError(
                f"{address} ended the call, as it does when it stops", request_id=request_id
            )
        case grpc.StatusCode.UNIMPLEMENTED:
            return InternalError(
                f"{address} does not know this call: it is not a Shaperouter, or of another "
                f"version ({details})",
                code=code,
                request_id=request_id,
            )
        case _:
            return InternalError(
                details or f"the call failed with {code.name}", code=code, request_id=request_id
            )


def cancelled() -> CallCancelledError:
    """The error of a call that was cancelled on this side."""
    return CallCancelledError(
        "the call was cancelled by cancel() or by closing the client",
        code=grpc.StatusCode.CANCELLED,
    )


def _unavailable(details: str, address: str) -> str:
    if "failed to connect" in details and _HANDSHAKE.search(details):
        reason = details.rpartition("last error: ")[2]
        return (
            f"{address} answers, but no connection was made: {reason}. Perhaps TLS is on at one "
            "end alone (tls, ca), or a certificate is not accepted: the service's, or one that it "
            "asks for (cert, key)"
        )
    if "failed to connect" in details or "error resolving" in details or "DNS" in details:
        reason = details.rpartition("last error: ")[2]
        return (
            f"no Shaperouter at {address}: {reason}. Start one with `shaperouterd serve`, "
            "or give the address of one (SHAPEROUTER_ADDRESS, --address)"
        )
    return details or f"the connection to {address} was lost"


def _deadline(details: str, deadline: float | None) -> str:
    if details and "Deadline Exceeded" not in details:  # the service says more than gRPC does
        return details
    limit = "in time" if deadline is None else f"within the timeout of {deadline:g} s"
    return (
        f"no answer {limit}; the first request of a shape waits for its compilation, "
        "so a cold service may need a longer timeout"
    )


def _with_violations(details: str, violations: Iterable[FieldViolation]) -> str:
    """The message, with the violations that it does not tell itself."""
    untold = [
        f"{violation.field}: {violation.description}"
        for violation in violations
        if violation.description not in details
    ]
    return "; ".join(part for part in (details, *untold) if part)


def _violations(status: status_pb2.Status) -> Iterator[FieldViolation]:
    for bad_request in _details(status, error_details_pb2.BadRequest):
        for violation in bad_request.field_violations:
            yield FieldViolation(field=violation.field, description=violation.description)


def _retry_after(status: status_pb2.Status) -> float | None:
    for info in _details(status, error_details_pb2.RetryInfo):
        return float(info.retry_delay.seconds + info.retry_delay.nanos / 1e9)
    return None


def _details(status: status_pb2.Status, kind: type[_Detail]) -> Iterator[_Detail]:
    for packed in status.details:
        detail = kind()
        if packed.Is(kind.DESCRIPTOR) and packed.Unpack(detail):
            yield detail


def _status(error: grpc.RpcError) -> status_pb2.Status:
    """The rich status that came with the error; an empty one if there is none to be read."""
    for key, value in _metadata(error, "trailing_metadata"):
        if key == _STATUS_KEY:
            try:
                return status_pb2.Status.FromString(cast("bytes", value))
            except DecodeError:
                break
    return status_pb2.Status()


def _request_id(error: grpc.RpcError) -> str:
    """The id the service gave the request: in its header, or with the status if that came first."""
    for part in ("initial_metadata", "trailing_metadata"):
        for key, value in _metadata(error, part):
            if key == _REQUEST_ID_KEY:
                return cast("str", value)
    return ""


def _metadata(error: grpc.RpcError, part: str) -> Iterable[tuple[str, str | bytes]]:
    """The metadata of an error: both of gRPC's APIs have it, its types do not tell."""
    return getattr(error, part)() or ()
