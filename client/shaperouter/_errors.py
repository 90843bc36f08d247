"""The errors of the client.

::

    ShaperouterError                 code            retriable
    ├── InvalidArgumentError         INVALID_ARGUMENT   no    a field is wrong; see violations
    ├── UnauthenticatedError         UNAUTHENTICATED    no    the token is missing or unknown
    ├── PermissionDeniedError        PERMISSION_DENIED  no    the token's client may not do this
    ├── ModelNotFoundError           NOT_FOUND          no    no model of that name is served
    ├── MessageTooLargeError         RESOURCE_EXHAUSTED no    above gRPC's limit for a message
    ├── OverloadedError              RESOURCE_EXHAUSTED yes   the queue is full, or this client is
    │                                                         at its limit; see retry_after
    ├── UnavailableError             UNAVAILABLE        yes   no connection, or the service is
    │                                                         shutting down
    ├── DeadlineError                DEADLINE_EXCEEDED  no    the timeout passed before the end
    ├── CallCancelledError           CANCELLED          no    cancel() or close() ended the call
    ├── PromptsError                 that of the first  no    some of several prompts failed; see
    │                                                         results
    └── InternalError                INTERNAL, others   no    a defect, or not a Shaperouter

Retriable: the same request may succeed if it is sent again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import grpc

if TYPE_CHECKING:
    from shaperouter._generation import Generation


@dataclass(frozen=True, kw_only=True)
class FieldViolation:
    """An invalid field of a request.

    Attributes:
        field: Path of the field in the request message, such as ``options.temperature``.
        description: What is wrong with it, with the limit and the value received.
    """

    field: str
    description: str


class ShaperouterError(Exception):
    """A failed call. The text says what happened and what to do.

    Attributes:
        code: The gRPC status code.
        request_id: Id of the request in the service's logs; empty if the request got none.
        retriable: Whether the same request may succeed if it is sent again.
        retry_after: Seconds to wait before sending it again; None if the service suggests none.
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
        """Stores the details of the failure."""
        super().__init__(message)
        self.code = code
        self.request_id = request_id


class InvalidArgumentError(ShaperouterError):
    """A field of the request is invalid; nothing was generated.

    Attributes:
        violations: The invalid fields; empty if the service did not name them.
    """

    violations: tuple[FieldViolation, ...]

    def __init__(
        self,
        message: str,
        *,
        violations: Sequence[FieldViolation] = (),
        request_id: str = "",
    ) -> None:
        """Stores the details of the failure."""
        super().__init__(message, code=grpc.StatusCode.INVALID_ARGUMENT, request_id=request_id)
        self.violations = tuple(violations)

    @classmethod
    def of(cls, field: str, description: str) -> "InvalidArgumentError":
        """The error for one invalid field, found before the request was sent."""
        violation = FieldViolation(field=field, description=description)
        return cls(f"{field}: {description}", violations=[violation])


class UnauthenticatedError(ShaperouterError):
    """The service requires a token, and the call's is missing or unknown."""


class PermissionDeniedError(ShaperouterError):
    """The service knows the token, but its client may not do this."""


class ModelNotFoundError(ShaperouterError):
    """The service has no model of that name; ``client.models()`` lists its models."""


class MessageTooLargeError(ShaperouterError):
    """The request or the response is larger than the service, or the client, accepts."""


class _TryAgainError(ShaperouterError):
    """An error after which the same request may be sent again."""

    retriable = True

    _code: ClassVar[grpc.StatusCode]

    def __init__(
        self, message: str, *, retry_after: float | None = None, request_id: str = ""
    ) -> None:
        """Stores the details of the failure."""
        super().__init__(message, code=self._code, request_id=request_id)
        self.retry_after = retry_after


class OverloadedError(_TryAgainError):
    """The service refused the call at once: its queue is full, or this client is at its limit."""

    _code = grpc.StatusCode.RESOURCE_EXHAUSTED


class UnavailableError(_TryAgainError):
    """Nothing listens at the address, or the service is shutting down."""

    _code = grpc.StatusCode.UNAVAILABLE


class DeadlineError(ShaperouterError):
    """The timeout passed before the call ended."""


class CallCancelledError(ShaperouterError):
    """The call was ended by ``cancel()`` or by closing the client."""


class PromptsError(ShaperouterError):
    """Some of several prompts failed; the results of all are included.

    Attributes:
        results: For each prompt, in order, its generation or its error.
    """

    results: "tuple[Generation | ShaperouterError, ...]"

    def __init__(
        self,
        message: str,
        *,
        results: "Sequence[Generation | ShaperouterError]" = (),
        code: grpc.StatusCode = grpc.StatusCode.UNKNOWN,
    ) -> None:
        """Stores the results."""
        super().__init__(message, code=code)
        self.results = tuple(results)

    @classmethod
    def of(cls, results: "Sequence[Generation | ShaperouterError]") -> "PromptsError":
        """The error for results with at least one error among them."""
        errors = {
            index: result
            for index, result in enumerate(results)
            if isinstance(result, ShaperouterError)
        }
        first, error = next(iter(errors.items()))
        others = f", and {len(errors) - 1} more" if len(errors) > 1 else ""
        return cls(
            f"{len(errors)} of {len(results)} prompts failed: prompt[{first}]: {error}{others}",
            results=results,
            code=error.code,
        )


class InternalError(ShaperouterError):
    """The service has a defect, the request kills its workers, or the server is no Shaperouter."""
