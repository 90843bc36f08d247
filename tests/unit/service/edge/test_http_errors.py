"""Errors in OpenAI's form."""

import json

import pytest

from shaperouter_service.edge.http.errors import error_response
from shaperouter_service.errors import (
    DeadlyRequestError,
    InvalidRequestError,
    ModelLoadingError,
    NotOperatorError,
    OtherChangeError,
    ServiceError,
    TooManyCallsError,
    UnauthenticatedError,
    UnknownModelError,
)


@pytest.mark.parametrize(
    ("error", "status", "kind", "code"),
    [
        (InvalidRequestError.of("n", "must be 1"), 400, "invalid_request_error", "invalid_request"),
        (UnauthenticatedError(has_token=False), 401, "authentication_error", "invalid_api_key"),
        (NotOperatorError("team"), 403, "permission_error", "not_operator"),
        (UnknownModelError("x", ["y"]), 404, "invalid_request_error", "model_not_found"),
        (OtherChangeError("m"), 409, "invalid_request_error", "other_change"),
        (TooManyCallsError(3), 429, "rate_limit_error", "too_many_calls"),
        (ModelLoadingError("m"), 503, "server_error", "model_loading"),
        (DeadlyRequestError("r", lost=3, isolated=2), 500, "server_error", "deadly_request"),
    ],
)
def test_errors_have_openais_status_type_and_code(
    error: ServiceError, status: int, kind: str, code: str
) -> None:
    response = error_response(error)
    assert response.status_code == status
    body = json.loads(bytes(response.body))["error"]
    assert (body["type"], body["code"], body["message"]) == (kind, code, str(error))


def test_a_request_that_kills_workers_is_not_to_be_sent_again() -> None:
    error = DeadlyRequestError("r", lost=3, isolated=2)
    assert error_response(error).headers["x-should-retry"] == "false"
