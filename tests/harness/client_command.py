"""The ``shaperouter`` command, run in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from click.testing import CliRunner, Result

from harness.waiting import TIMEOUT
from shaperouter._cli._main import cli
from shaperouter.v1 import generation_pb2

if TYPE_CHECKING:
    from conftest import FakeShaperouter


def run(fake: FakeShaperouter, *arguments: str, stdin: str | bytes | None = None) -> Result:
    options = ["--address", fake.address, "--timeout", str(TIMEOUT)]
    return CliRunner().invoke(cli, [*options, *arguments], input=stdin)


def request_of(fake: FakeShaperouter) -> generation_pb2.GenerateStreamRequest:
    (request,) = fake.requests
    assert isinstance(request, generation_pb2.GenerateStreamRequest)
    return request
