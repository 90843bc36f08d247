"""``shaperouter chat``, run in this process."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import grpc
import pytest
from click.testing import CliRunner

from harness.client_command import run
from shaperouter._cli._main import cli

if TYPE_CHECKING:
    from conftest import FakeShaperouter


def contents(fake: FakeShaperouter) -> list[list[tuple[str, str]]]:
    """The role and content of each message, for each request."""
    return [[(each.role, each.content) for each in request.messages] for request in fake.requests]


def test_each_answer_becomes_part_of_the_conversation(fake: FakeShaperouter) -> None:
    result = run(fake, "chat", "--system", "Be brief.", stdin="hello\n\nand\n")
    assert (result.exit_code, result.stdout) == (0, " a library\n a library\n")
    system, hello, answer = (
        ("system", "Be brief."),
        ("user", "hello"),
        ("assistant", " a library"),
    )
    assert contents(fake) == [[system, hello], [system, hello, answer, ("user", "and")]]


def test_exit_ends_the_conversation(fake: FakeShaperouter) -> None:
    result = run(fake, "chat", stdin="hello\n/exit\nunread\n")
    assert result.exit_code == 0
    assert len(fake.requests) == 1


def test_the_conversation_goes_on_after_an_error(fake: FakeShaperouter) -> None:
    script = fake.script

    def fail_once(context: grpc.ServicerContext) -> None:
        fake.script = script
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "messages: too sad")

    fake.script = [fail_once]
    result = run(fake, "chat", stdin="sad\nglad\n")
    assert (result.exit_code, result.stdout) == (0, " a library\n")
    assert "Error: messages: too sad" in result.stderr
    assert contents(fake) == [[("user", "sad")], [("user", "glad")]]


@pytest.mark.usefixtures("fast_retries")
def test_the_exit_code_is_1_if_all_messages_failed(unused_address: str) -> None:
    result = CliRunner().invoke(cli, ["chat", "--address", unused_address], input="hi\nho\n")
    assert result.exit_code == 1
    assert result.stderr.count("Error: no Shaperouter at ") == 2


def test_a_message_that_is_not_utf8_is_dropped(fake: FakeShaperouter) -> None:
    result = run(fake, "chat", stdin=b"ab\xff\nglad\n")
    assert (result.exit_code, result.stdout) == (0, " a library\n")
    assert "Error: messages: stdin is not UTF-8: byte 2 is 0xff" in result.stderr
    assert contents(fake) == [[("user", "glad")]]


def test_json_prints_events(fake: FakeShaperouter) -> None:
    result = run(fake, "--json", "chat", "--seed", "3", stdin="hello\n")
    events = [json.loads(line)["event"] for line in result.stdout.splitlines()]
    assert events == ["stall", "delta", "delta", "completion"]
    assert fake.requests[0].options.seed == 3


@pytest.mark.parametrize("option", [["--echo"], ["--logprobs", "1"]])
def test_options_that_cannot_be_shown_are_refused(fake: FakeShaperouter, option: list[str]) -> None:
    result = run(fake, "chat", *option, stdin="hello\n")
    assert result.exit_code == 2
    assert not fake.requests
