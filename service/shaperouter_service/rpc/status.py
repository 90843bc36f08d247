"""Errors to gRPC statuses with `google.rpc` details, and back."""

from typing import Any, NoReturn

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from grpc import StatusCode, aio
from grpc_status import rpc_status

from shaperouter_service.errors import InvalidRequestError, ServiceError

DOMAIN = "shaperouter"
_DETAILS_KEY = "grpc-status-details-bin"


class RelayedError(ServiceError):
    """An error that a worker answered with, passed on as it came."""

    def __init__(self, status: status_pb2.Status) -> None:
        """Takes the worker's status."""
        super().__init__(status.message)
        self.status = status
        self.code = next(code for code in StatusCode if code.value[0] == status.code)


def to_status(error: ServiceError) -> status_pb2.Status:
    """Describes an error with ErrorInfo and, where they apply, BadRequest and RetryInfo."""
    if isinstance(error, RelayedError):
        return error.status
    details: list[Message] = [error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN)]
    if isinstance(error, InvalidRequestError):
        violations = [
            error_details_pb2.BadRequest.FieldViolation(field=v.field, description=v.description)
            for v in error.violations
        ]
        details.append(error_details_pb2.BadRequest(field_violations=violations))
    if error.retry_after is not None:
        delay = Duration()
        delay.FromNanoseconds(int(error.retry_after * 1e9))
        details.append(error_details_pb2.RetryInfo(retry_delay=delay))
    packed = []
    for detail in details:
        packed.append(AnyMessage())
        packed[-1].Pack(detail)
    return status_pb2.Status(code=error.code.value[0], message=str(error), details=packed)


def from_call(error: aio.AioRpcError) -> RelayedError:
    """The error of a call to a worker."""
    status = rpc_status.from_call(error)
    if status is None:
        status = status_pb2.Status(code=error.code().value[0], message=error.details() or "")
    return RelayedError(status)


def reason_of(error: aio.AioRpcError) -> str:
    """The constant of a call's ErrorInfo; empty if the error is not one of ours."""
    info = error_details_pb2.ErrorInfo()
    status = rpc_status.from_call(error)
    for detail in status.details if status else ():
        if detail.Unpack(info):
            return str(info.reason)
    return ""


async def abort(context: aio.ServicerContext[Any, Any], error: ServiceError) -> NoReturn:
    """Ends a call with an error; does not return."""
    status = to_status(error)
    metadata = (*(context.trailing_metadata() or ()), (_DETAILS_KEY, status.SerializeToString()))
    if error.deadly:
        # Tells gRPC's own retries to stop; people and their programs still may.
        metadata = (*metadata, ("grpc-retry-pushback-ms", "-1"))
    await context.abort(error.code, status.message, metadata)
