"""The errors of the client.

::

    ShaperouterError                 code            retriable
    ├── InvalidArgumentError         INVALID_ARGUMENT   no    a field is wrong; see violations
    ├── UnauthenticatedError         UNAUTHENTICATED    no    no token, or one that is not known
    ├── PermissionDeniedError        PERMISSION_DENIED  no    the token is of nobody who may do this
    ├── ModelNotFoundError           NOT_FOUND          no    no model of that name is served
    ├── MessageTooLargeError         RESOURCE_EXHAUSTED no    over gRPC's limit of a message's size
    ├── OverloadedError              RESOURCE_EXHAUSTED yes   the queue is full, or this client is
    │                                                         at its limit; see retry_after
    ├── UnavailableError             UNAVAILABLE        yes   no connection, the worker was lost, or
    │                                                         the service is shutting down
    ├── DeadlineError                DEADLINE_EXCEEDED  no    the timeout ended first
    ├── CallCancelledError           CANCELLED          no    cancel() or close() ended the call
    └── InternalError                INTERNAL, others   no    a defect, or not a Shaperouter

Retriable: the same request may succeed if it is sent again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import grpc


@dataclass(frozen=True, kw_only=True)
class FieldViolation:
    """A field of a request that is wrong.

    Attributes:
        field: Path of the field in the request message, such as ``options.temperature``.
        description: What is wrong with it: the limit and the value received.
    """

    field: str
    description: str


class ShaperouterError(Exception):
    """A call failed. Its text says what happened and what to do.

    Attributes:
        code: The gRPC status code.
        request_id: Id of the request in the service's logs; empty if the request got none.
        retriable: Whether the same request may succeed if it is sent again.
        retry_after: Seconds after which the service suggests to do so; None if it said nothing.
    """

    retriable: ClassVar[bool] = False

    retry_after: float | None = None

    code: grpc.StatusCode
    request_id: str

    def __init__(
        self,
        message: str,
        *,
        code: grpc.StatusCode = grpc.StatusCode.UNKNOWN,
        request_id: str = "",
    ) -> None:
        """Keeps what is known about the failure."""
        super().__init__(message)
        self.code = code
        self.request_id = request_id


class InvalidArgumentError(ShaperouterError):
    """A field of the request is wrong; nothing was generated.

    Attributes:
        violations: The wrong fields; empty if the service did not name them.
    """

    violations: tuple[FieldViolation, ...]

    def __init__(
        self,
        message: str,
        *,
        violations: Sequence[FieldViolation] = (),
        request_id: str = "",
    ) -> None:
        """Keeps what is known about the failure."""
        super().__init__(message, code=grpc.StatusCode.INVALID_ARGUMENT, request_id=request_id)
        self.violations = tuple(violations)

    @classmethod
    def of(cls, field: str, description: str) -> "InvalidArgumentError":
        """The error for one wrong field, found before anything was sent."""
        violation = FieldViolation(field=field, description=description)
        return cls(f"{field}: {description}", violations=[violation])


class UnauthenticatedError(ShaperouterError):
    """The service asks for a token, and got none, or one that it does not know."""


class PermissionDeniedError(ShaperouterError):
    """The service knows the token, and its client may not do this."""


class ModelNotFoundError(ShaperouterError):
    """The service has no model of that name; ``client.models()`` lists those it has."""


class MessageTooLargeError(ShaperouterError):
    """The request or the response is over gRPC's limit of a message's size (4 MiB by default)."""


class _TryAgainError(ShaperouterError):
    """An error after which the same request may be sent again."""

    retriable = True

    _code: ClassVar[grpc.StatusCode]

    def __init__(
        self, message: str, *, retry_after: float | None = None, request_id: str = ""
    ) -> None:
        """Keeps what is known about the failure."""
        super().__init__(message, code=self._code, request_id=request_id)
        self.retry_after = retry_after


class OverloadedError(_TryAgainError):
    """The service's queue is full, or this client is at its limit: refused at once."""

    _code = grpc.StatusCode.RESOURCE_EXHAUSTED


class UnavailableError(_TryAgainError):
    """Nothing answers at the address, the worker was lost, or the service is shutting down."""

    _code = grpc.StatusCode.UNAVAILABLE


class DeadlineError(ShaperouterError):
    """The timeout ended before the answer."""


class CallCancelledError(ShaperouterError):
    """The call was ended by ``cancel()`` or by closing the client."""


class InternalError(ShaperouterError):
    """A defect of the service, or what answers at the address is not a Shaperouter."""
