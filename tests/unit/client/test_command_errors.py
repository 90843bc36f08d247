"""How the ``shaperouter`` command reports failed calls."""

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


def test_failure_prints_one_line_and_exits_with_1(fake: FakeShaperouter) -> None:
    fake.script = [fake.fail(grpc.StatusCode.INTERNAL, "the worker's graph failed")]
    result = run(fake, "generate", "x")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "Error: the worker's graph failed (request req-7)\n"


def test_invalid_argument_exits_with_2(fake: FakeShaperouter) -> None:
    violation = BadRequest.FieldViolation(field="text", description="must not be empty")
    details = BadRequest(field_violations=[violation])
    fake.script = [fake.fail(grpc.StatusCode.INVALID_ARGUMENT, "invalid", details)]
    result = run(fake, "generate", "")
    assert result.exit_code == 2
    assert result.stderr == "Error: PROMPT: must not be empty (request req-7)\n"


@pytest.mark.parametrize(
    ("command", "field", "description", "told"),
    [
        (
            ["generate", "x"],
            "options.num_beams",
            "must be from 1 to 8, got 9",
            "--num-beams: must be from 1 to 8, got 9",
        ),
        (
            ["generate", "x"],
            "options.min_new_tokens",
            "must be at most 4 (max_new_tokens), got 5",
            "--min-new-tokens: must be at most 4 (--max-new-tokens), got 5",
        ),
        (
            ["generate", "x"],
            "options.top_k",
            "contradicts do_sample = false, got 5",
            "--top-k: contradicts --sample/--greedy = false, got 5",
        ),
        (
            ["generate", "x"],
            "options.bad_words[1]",
            "must be from 1 to 8 tokens, got 9",
            "--bad-word[1]: must be from 1 to 8 tokens, got 9",
        ),
        (
            ["generate", "x"],
            "token_ids.ids[2]",
            "must be from 0 to 99 (vocab_size - 1), got 100",
            "PROMPT[2]: must be from 0 to 99 (vocab_size - 1), got 100",
        ),
        (
            ["generate", "x"],
            "options.stop",
            "must be empty: the model says stop",
            "--stop: must be empty: the model says stop",
        ),
        (["models"], "a_new_field", "is wrong", "a_new_field: is wrong"),
    ],
)
def test_errors_name_command_line_options(
    fake: FakeShaperouter, command: list[str], field: str, description: str, told: str
) -> None:
    violation = BadRequest.FieldViolation(field=field, description=description)
    details = BadRequest(field_violations=[violation])
    step = fake.fail(grpc.StatusCode.INVALID_ARGUMENT, f"{field}: {description}", details)
    fake.script = [step]
    fake.before_models = step
    result = run(fake, *command)
    assert result.exit_code == 2
    assert result.stderr == f"Error: {told} (request req-7)\n"


def test_errors_of_the_client_itself_name_command_line_options(fake: FakeShaperouter) -> None:
    result = run(fake, "generate", "x", "--max-new-tokens", str(2**31))
    assert result.exit_code == 2
    assert result.stderr == (
        "Error: --max-new-tokens: must fit a signed 32-bit integer, got 2147483648\n"
    )
    assert not fake.requests


def test_message_without_violations_names_command_line_options(
    fake: FakeShaperouter,
) -> None:
    told = "options.num_beams must be at most 8; options.stop is not for beams; stop"
    fake.script = [fake.fail(grpc.StatusCode.INVALID_ARGUMENT, told)]
    assert run(fake, "generate", "x").stderr == (
        "Error: --num-beams must be at most 8; --stop is not for beams; stop (request req-7)\n"
    )


def test_overload_says_when_to_retry(fake: FakeShaperouter) -> None:
    info = RetryInfo(retry_delay=Duration(seconds=2))
    fake.script = [fake.fail(grpc.StatusCode.RESOURCE_EXHAUSTED, "queue is full", info)]
    result = run(fake, "generate", "x")
    assert result.exit_code == 1
    assert "queue is full" in result.stderr
    assert "retrying in 2 s" in result.stderr


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


def test_text_before_an_error_remains(fake: FakeShaperouter) -> None:
    fake.script[2:] = [fake.fail(grpc.StatusCode.UNAVAILABLE, "worker-0 was lost")]
    result = run(fake, "generate", "x", "--stream")
    assert (result.exit_code, result.stdout) == (1, " a")
    assert "worker-0 was lost" in result.stderr


@pytest.mark.usefixtures("fast_retries")
def test_absent_service_is_reported(unused_address: str) -> None:
    result = CliRunner().invoke(cli, ["models", "--address", unused_address])
    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: no Shaperouter at {unused_address}: ")
