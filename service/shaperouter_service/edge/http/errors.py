"""Errors over HTTP: their statuses and headers, and bodies in OpenAI's form."""

from collections.abc import Callable, Mapping
from http import HTTPStatus
from math import ceil
from typing import Any, TypeAlias

from starlette.responses import JSONResponse

from shaperouter_service.errors import Code, ServiceError, UnauthenticatedError

_STATUSES: Mapping[Code, int] = {
    Code.INVALID_ARGUMENT: HTTPStatus.BAD_REQUEST,
    Code.OUT_OF_RANGE: HTTPStatus.BAD_REQUEST,
    Code.FAILED_PRECONDITION: HTTPStatus.BAD_REQUEST,
    Code.UNAUTHENTICATED: HTTPStatus.UNAUTHORIZED,
    Code.PERMISSION_DENIED: HTTPStatus.FORBIDDEN,
    Code.NOT_FOUND: HTTPStatus.NOT_FOUND,
    Code.ABORTED: HTTPStatus.CONFLICT,
    Code.RESOURCE_EXHAUSTED: HTTPStatus.TOO_MANY_REQUESTS,
    Code.UNIMPLEMENTED: HTTPStatus.NOT_IMPLEMENTED,
    Code.UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
    Code.DEADLINE_EXCEEDED: HTTPStatus.GATEWAY_TIMEOUT,
}
# OpenAI's types of errors.
_TYPES: Mapping[int, str] = {
    HTTPStatus.UNAUTHORIZED: "authentication_error",
    HTTPStatus.FORBIDDEN: "permission_error",
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_error",
}
# OpenAI's codes where they are not ours in lower case.
_CODES: Mapping[str, str] = {
    "MISSING_TOKEN": "invalid_api_key",
    "UNKNOWN_TOKEN": "invalid_api_key",
    "UNKNOWN_MODEL": "model_not_found",
}


class HttpError(ServiceError):
    """A request that HTTP or the form of its body makes invalid.

    Attributes:
        status: Status of the answer.
    """

    code = Code.INVALID_ARGUMENT

    def __init__(self, status: HTTPStatus, code: str, message: str) -> None:
        """Takes the status, OpenAI's code (a constant for programs), and what is wrong."""
        super().__init__(message)
        self.status, self.reason = status, code.upper()


def error_body(error: ServiceError) -> dict[str, Any]:
    """The body of an error in OpenAI's form, which also ends a stream."""
    status = _status(error)
    first = error.violations[0] if error.violations else None
    reason = (first.reason if first else "") or error.reason
    code, param = _CODES.get(reason, reason.lower()), first.field if first else None
    kind = "server_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error"
    kind = _TYPES.get(status, kind)
    told = {"message": str(error), "type": kind, "param": param, "code": code or None}
    return {"error": told | retry_hint(error)}


def retry_hint(error: ServiceError) -> dict[str, float]:
    """Seconds after which to try again, for bodies: the end of a stream has no headers."""
    return {} if error.retry_after is None else {"retry_after": error.retry_after}


ErrorBody: TypeAlias = Callable[[ServiceError], dict[str, Any]]


def error_response(
    error: ServiceError,
    headers: Mapping[str, str] | None = None,
    *,
    body: ErrorBody = error_body,
) -> JSONResponse:
    """The answer to a request that failed.

    Args:
        error: The error.
        headers: More headers.
        body: Makes the body.
    """
    given = dict(headers or {})
    if error.retry_after is not None:
        given["retry-after"] = str(ceil(error.retry_after))
        given["retry-after-ms"] = str(ceil(error.retry_after * 1000))
    if isinstance(error, UnauthenticatedError):
        given["www-authenticate"] = "Bearer"
    if error.deadly:
        # OpenAI's clients then send it only once.
        given["x-should-retry"] = "false"
    return JSONResponse(body(error), _status(error), given)


def _status(error: ServiceError) -> int:
    if isinstance(error, HttpError):
        return error.status
    return _STATUSES.get(error.code, HTTPStatus.INTERNAL_SERVER_ERROR)
