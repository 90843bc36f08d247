"""``shaperouter load``, ``unload`` and ``alias``, run in this process."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import grpc
import pytest
from click.testing import CliRunner, Result

from harness.waiting import TIMEOUT
from shaperouter._cli._main import cli
from shaperouter.v1 import model_pb2

if TYPE_CHECKING:
    from conftest import FakeShaperouter

REVISION = 64 * "a"


def run(fake: FakeShaperouter, *arguments: str) -> Result:
    options = ["--address", fake.address, "--timeout", str(TIMEOUT)]
    return CliRunner().invoke(cli, [*options, *arguments])


def test_load_sends_name_and_location_and_prints_the_revision(fake: FakeShaperouter) -> None:
    fake.loaded = model_pb2.Model(name="gpt2", revision=REVISION)
    result = run(fake, "load", "gpt2=gpt2-2")
    assert (result.exit_code, result.stdout) == (0, "gpt2 serves revision aaaaaaaaaaaa\n")
    assert fake.requests == [model_pb2.LoadModelRequest(name="gpt2", location="gpt2-2", share=1.0)]


@pytest.mark.parametrize(("options", "limited"), [(("--timeout", "60"), True), ((), False)])
def test_a_load_has_the_deadline_that_is_given(
    fake: FakeShaperouter, options: tuple[str, ...], limited: bool
) -> None:
    left: list[float] = []
    fake.before_models = lambda context: left.append(context.time_remaining())
    CliRunner().invoke(cli, ["--address", fake.address, "load", "gpt2", *options])
    # gRPC rounds the time that is left up when it sends it.
    assert [seconds < 61 for seconds in left] == [limited]


def test_a_canary_prints_the_share_of_each_revision(fake: FakeShaperouter) -> None:
    fake.loaded = model_pb2.Model(
        name="gpt2",
        targets=[
            model_pb2.Target(model="gpt2", share=0.9),
            model_pb2.Target(model="gpt2@aaaaaaaaaaaa", share=0.1),
        ],
    )
    result = run(fake, "load", "gpt2=gpt2-2", "--canary", "10")
    assert (result.exit_code, result.stdout) == (0, "gpt2: gpt2 90%, gpt2@aaaaaaaaaaaa 10%\n")
    assert fake.requests[0].share == 0.1
    as_json = json.loads(run(fake, "load", "gpt2", "--canary", "10", "--json").stdout)
    assert as_json["model"]["targets"] == {"gpt2": 0.9, "gpt2@aaaaaaaaaaaa": 0.1}


def test_a_model_that_was_not_loaded_exits_with_1_and_the_reason(fake: FakeShaperouter) -> None:
    why = "gpt2 was not loaded, and nothing has changed: worker-0: no memory"
    fake.before_models = fake.fail(grpc.StatusCode.FAILED_PRECONDITION, why)
    result = run(fake, "load", "gpt2")
    assert result.exit_code == 1
    assert why in result.stderr


def test_unload_sends_the_name(fake: FakeShaperouter) -> None:
    result = run(fake, "unload", "gpt2")
    assert (result.exit_code, result.stdout) == (0, "gpt2 is unloaded\n")
    assert fake.requests == [model_pb2.UnloadModelRequest(name="gpt2")]


@pytest.mark.parametrize(
    ("argument", "shares", "printed"),
    [
        ("chat=gpt2", {"gpt2": 1.0}, "chat: gpt2 100%\n"),
        ("chat=gpt2:90,new:10", {"gpt2": 0.9, "new": 0.1}, "chat: gpt2 90%, new 10%\n"),
    ],
)
def test_alias_sends_the_share_of_each_model(
    fake: FakeShaperouter, argument: str, shares: dict[str, float], printed: str
) -> None:
    result = run(fake, "alias", argument)
    assert (result.exit_code, result.stdout) == (0, printed)
    (request,) = fake.requests
    assert request.name == "chat"
    assert {each.model: each.share for each in request.targets} == shares


def test_percentages_that_are_no_numbers_are_refused(fake: FakeShaperouter) -> None:
    result = run(fake, "alias", "chat=gpt2:most")
    assert result.exit_code == 2
    assert "must be NAME=MODEL or NAME=MODEL:90,MODEL:10" in result.stderr
    assert not fake.requests
