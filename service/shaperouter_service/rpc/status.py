"""Errors to gRPC statuses with `google.rpc` details, and back."""

from typing import Any, NoReturn

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from grpc import StatusCode, aio
from grpc_status import rpc_status

from shaperouter_service.errors import Code, InvalidRequestError, ServiceError
from shaperouter_service.rpc.call import current_call

DOMAIN = "shaperouter"
_DETAILS_KEY = "grpc-status-details-bin"
_GRPC_CODES = {Code(code.value[0]): code for code in StatusCode}


class RelayedError(ServiceError):
    """An error that a worker answered with, passed on as it came."""

    def __init__(self, status: status_pb2.Status) -> None:
        """Takes the worker's status."""
        super().__init__(status.message)
        self.status = status
        self.reason = _reason(status)
        self.code = Code(status.code)


def to_status(error: ServiceError, request_id: str = "") -> status_pb2.Status:
    """Describes an error with ErrorInfo and, where they apply, BadRequest and RetryInfo.

    Args:
        error: What to describe.
        request_id: Of the call that failed, for RequestInfo; empty if it has none.
    """
    status = status_pb2.Status()
    status.CopyFrom(error.status if isinstance(error, RelayedError) else _status_of(error))
    if request_id:
        status.details.add().Pack(error_details_pb2.RequestInfo(request_id=request_id))
    return status


def _status_of(error: ServiceError) -> status_pb2.Status:
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
    return status_pb2.Status(code=error.code, message=str(error), details=packed)


def from_call(error: aio.AioRpcError) -> RelayedError:
    """The error of a call to a worker."""
    status = rpc_status.from_call(error)
    if status is None:
        status = status_pb2.Status(code=error.code().value[0], message=error.details() or "")
    return RelayedError(status)


def reason_of(error: aio.AioRpcError) -> str:
    """The constant of a call's ErrorInfo; empty if the error is not one of ours."""
    status = rpc_status.from_call(error)
    return _reason(status) if status else ""


def _reason(status: status_pb2.Status) -> str:
    info = error_details_pb2.ErrorInfo()
    for detail in status.details:
        if detail.Unpack(info):
            return str(info.reason)
    return ""


async def abort(context: aio.ServicerContext[Any, Any], error: ServiceError) -> NoReturn:
    """Ends a call with an error; does not return."""
    call = current_call.get()
    status = to_status(error, call.request_id if call else "")
    metadata = (*(context.trailing_metadata() or ()), (_DETAILS_KEY, status.SerializeToString()))
    if error.deadly:
        # Tells gRPC's own retries to stop; people and their programs still may.
        metadata = (*metadata, ("grpc-retry-pushback-ms", "-1"))
    await context.abort(_GRPC_CODES[error.code], status.message, metadata)
