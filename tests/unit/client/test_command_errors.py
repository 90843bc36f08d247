"""How the ``shaperouter`` command tells that a call has failed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import grpc
import pytest
from click.testing import CliRunner
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import BadRequest, RetryInfo

from harness.client_command import run
from shaperouter._cli._main import cli

if TYPE_CHECKING:
    from conftest import FakeShaperouter


def test_failure_is_one_line_and_exit_code_1(fake: FakeShaperouter) -> None:
    fake.script = [fake.fail(grpc.StatusCode.INTERNAL, "the worker's graph failed")]
    result = run(fake, "generate", "x")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "Error: the worker's graph failed (request req-7)\n"


def test_invalid_argument_is_exit_code_2(fake: FakeShaperouter) -> None:
    violation = BadRequest.FieldViolation(field="text", description="must not be empty")
    details = BadRequest(field_violations=[violation])
    fake.script = [fake.fail(grpc.StatusCode.INVALID_ARGUMENT, "invalid", details)]
    result = run(fake, "generate", "")
    assert result.exit_code == 2
    assert "text: must not be empty" in result.stderr


def test_overload_tells_when_to_try_again(fake: FakeShaperouter) -> None:
    info = RetryInfo(retry_delay=Duration(seconds=2))
    fake.script = [fake.fail(grpc.StatusCode.RESOURCE_EXHAUSTED, "queue is full", info)]
    result = run(fake, "generate", "x")
    assert result.exit_code == 1
    assert "queue is full" in result.stderr
    assert "try again in 2 s" in result.stderr


def test_json_errors_are_objects_on_stderr(fake: FakeShaperouter) -> None:
    violation = BadRequest.FieldViolation(field="text", description="must not be empty")
    details = BadRequest(field_violations=[violation])
    fake.script = [fake.fail(grpc.StatusCode.INVALID_ARGUMENT, "invalid", details)]
    result = run(fake, "generate", "", "--json")
    assert (result.exit_code, result.stdout) == (2, "")
    assert json.loads(result.stderr)["error"] == {
        "code": "INVALID_ARGUMENT",
        "message": "invalid; text: must not be empty",
        "retriable": False,
        "request_id": "req-7",
        "retry_after": None,
        "violations": [{"field": "text", "description": "must not be empty"}],
    }


def test_text_before_an_error_stays(fake: FakeShaperouter) -> None:
    fake.script[2:] = [fake.fail(grpc.StatusCode.UNAVAILABLE, "worker-0 was lost")]
    result = run(fake, "generate", "x", "--stream")
    assert (result.exit_code, result.stdout) == (1, " a")
    assert "worker-0 was lost" in result.stderr


@pytest.mark.usefixtures("hasty_retries")
def test_absent_service_is_told(nobody: str) -> None:
    result = CliRunner().invoke(cli, ["models", "--address", nobody])
    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: no Shaperouter at {nobody}: ")
