"""Conversion of a failed call's status to the client's errors."""

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
# Milliseconds after which gRPC's own retries may repeat a call; below 0 they may not.
_PUSHBACK_KEY = "grpc-retry-pushback-ms"

# gRPC's texts if only one end uses TLS, or if one end does not trust the other.
_HANDSHAKE = re.compile(r"Socket closed|[Hh]andshake|SSL_|[Vv]erification [Cc]heck")

# gRPC's texts, from either of its resolvers, if a host name has no address.
_UNRESOLVED = re.compile(r"errors? resolving|DNS resolution failed|Domain name not found")

# gRPC's texts for an address with a known scheme and an invalid rest.
_UNREADABLE = "the target uri is not valid"

# gRPC's texts for calls that this side has cancelled, or whose channel it has closed.
_CANCELLED_HERE = re.compile(r"Locally cancelled|Channel closed")

# gRPC's texts for calls that a server has not begun: one that reached it as it stopped or closed an
# old connection (https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md: GOAWAY), and one
# that found its connection closed, so that nothing of it was sent.
_NOT_BEGUN = re.compile(r"Stream removed \((?:GOAWAY received|Transport closed)")

_Detail = TypeVar("_Detail", bound=Message)


def error_of(  # noqa: PLR0911, PLR0912 (one for each error)
    error: grpc.RpcError, *, address: str, deadline: float | None
) -> ShaperouterError:
    """Converts the error of a failed call.

    Args:
        error: The error that gRPC raised, from either of its two APIs.
        address: The address that was called.
        deadline: Deadline of the call in seconds; None means none.
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
                f"a message exceeds gRPC's size limit: {details}",
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
            # gRPC's text for calls that reach a server at the moment it stops.
            return UnavailableError(
                f"{address} ended the call, as it does when it stops", request_id=request_id
            )
        case grpc.StatusCode.UNKNOWN if _UNREADABLE in details:
            return InvalidArgumentError.of("address", f"gRPC cannot read {address!r}")
        case grpc.StatusCode.UNIMPLEMENTED:
            return InternalError(
                f"{address} does not know this call: it is not a Shaperouter service, or it runs "
                f"another version ({details})",
                code=code,
                request_id=request_id,
            )
        case _:
            return InternalError(
                details or f"the call failed with {code.name}", code=code, request_id=request_id
            )


def forbids_retry(error: object) -> bool:
    """Whether the service asks programs not to repeat a call, which may have killed a worker.

    Args:
        error: The error that gRPC raised; any other object forbids nothing.
    """
    return isinstance(error, grpc.RpcError) and any(
        key == _PUSHBACK_KEY and str(value).startswith("-")
        for key, value in _metadata(error, "trailing_metadata")
    )


def was_begun(error: object) -> bool:
    """Whether the service may have begun a call.

    Args:
        error: The error that gRPC raised; any other object tells nothing.
    """
    return not (
        isinstance(error, grpc.RpcError)
        and error.code() is grpc.StatusCode.UNAVAILABLE
        and _NOT_BEGUN.match(error.details() or "")
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
    if _UNRESOLVED.search(details):
        reason = details.rpartition(": ")[2].rstrip("]")
        return (
            f"the host of {address} cannot be resolved: {reason}. Check its spelling and this "
            "machine's DNS, or give another address (SHAPEROUTER_ADDRESS, --address)"
        )
    if "failed to connect" in details:
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
    return f"no answer {limit}; a service that is starting or busy may need a longer timeout"


def _with_violations(details: str, violations: Iterable[FieldViolation]) -> str:
    """The message, with the violations that it does not contain."""
    missing = [
        f"{violation.field}: {violation.description}"
        for violation in violations
        if violation.description not in details
    ]
    return "; ".join(part for part in (details, *missing) if part)


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
    """The rich status of the error; an empty one if none can be read."""
    for key, value in _metadata(error, "trailing_metadata"):
        if key == _STATUS_KEY:
            try:
                return status_pb2.Status.FromString(cast("bytes", value))
            except DecodeError:
                break
    return status_pb2.Status()


def _request_id(error: grpc.RpcError) -> str:
    """The request's id at the service, from its header, or from the status if that came first."""
    for part in ("initial_metadata", "trailing_metadata"):
        for key, value in _metadata(error, part):
            if key == _REQUEST_ID_KEY:
                return cast("str", value)
    return ""


def _metadata(error: grpc.RpcError, part: str) -> Iterable[tuple[str, str | bytes]]:
    """The metadata of an error. Both of gRPC's APIs have it, but their types do not declare it."""
    return getattr(error, part)() or ()
