"""Checking whether a service is ready, and waiting until it is."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from click.testing import CliRunner

from harness.client_command import run
from harness.waiting import TIMEOUT
from shaperouter import (
    AsyncClient,
    CallCancelledError,
    Client,
    DeadlineError,
    ModelNotFoundError,
    UnauthenticatedError,
    _readiness,
)
from shaperouter._cli._main import cli

if TYPE_CHECKING:
    from conftest import FakeShaperouter

Ask = Callable[..., Any]


def blocking(address: str, method: str, *arguments: Any, **settings: Any) -> Any:
    with Client(address, timeout=TIMEOUT) as client:
        return getattr(client, method)(*arguments, **settings)


def asynchronous(address: str, method: str, *arguments: Any, **settings: Any) -> Any:
    async def call() -> Any:
        async with AsyncClient(address, timeout=TIMEOUT) as client:
            return await getattr(client, method)(*arguments, **settings)

    return asyncio.run(call())


both = pytest.mark.parametrize("ask", [blocking, asynchronous])


@both
def test_ready_follows_the_health_service(fake: FakeShaperouter, ask: Ask) -> None:
    assert ask(fake.address, "ready") is True
    fake.set_ready(False)
    assert ask(fake.address, "ready") is False


@both
def test_model_is_ready_once_it_has_a_ready_worker(fake: FakeShaperouter, ask: Ask) -> None:
    fake.set_ready(False)
    assert ask(fake.address, "ready", "demo") is True
    fake.models[0].ready_workers = 0
    assert ask(fake.address, "ready", "demo") is False


@both
@pytest.mark.parametrize("method", ["ready", "wait_until_ready"])
def test_a_model_that_is_not_served_is_an_error(
    fake: FakeShaperouter, ask: Ask, method: str
) -> None:
    with pytest.raises(ModelNotFoundError, match="no model 'other'"):
        ask(fake.address, method, "other")


@both
def test_ready_is_false_if_nothing_listens(unused_address: str, ask: Ask) -> None:
    assert ask(unused_address, "ready") is False


@both
def test_ready_waits_as_long_as_its_timeout(fake: FakeShaperouter, ask: Ask) -> None:
    left: list[float | None] = []

    def note(context: grpc.ServicerContext) -> None:
        left.append(context.time_remaining())

    fake.before_models = note
    assert ask(fake.address, "ready", "demo", timeout=60)
    ask(fake.address, "wait_until_ready", "demo", timeout=60)
    once, repeated = left
    assert once is not None
    assert repeated is not None
    assert once > 30
    assert repeated < 6


@both
def test_waiting_ends_when_the_service_is_ready(fake: FakeShaperouter, ask: Ask) -> None:
    fake.set_ready(False)
    lacks: list[str] = []

    def on_wait(lack: str) -> None:
        lacks.append(lack)
        fake.set_ready(len(lacks) == 2)

    ask(fake.address, "wait_until_ready", on_wait=on_wait)
    assert lacks == ["a model has no ready worker yet"] * 2


@both
def test_waiting_can_begin_before_the_service_listens(unstarted: FakeShaperouter, ask: Ask) -> None:
    lacks: list[str] = []

    def on_wait(lack: str) -> None:
        if not lacks:
            unstarted.start()
        lacks.append(lack)

    # The port is bound but not served: an attempt waits until it is, or times out.
    ask(unstarted.address, "wait_until_ready", on_wait=on_wait, timeout=60)
    assert lacks


@pytest.fixture
def patient_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets each check wait for its answer, however busy the machine is."""
    monkeypatch.setattr(_readiness, "_MIN_TIMEOUT", TIMEOUT)
    monkeypatch.setattr(_readiness, "_MAX_TIMEOUT", TIMEOUT)


@both
@pytest.mark.usefixtures("patient_checks")
def test_timeout_of_waiting_says_what_was_missing(unused_address: str, ask: Ask) -> None:
    with pytest.raises(DeadlineError) as caught:
        ask(unused_address, "wait_until_ready", timeout=0.6)
    assert str(caught.value).startswith(
        f"not ready within 0.6 s: no Shaperouter at {unused_address}: "
    )
    assert caught.value.code is grpc.StatusCode.DEADLINE_EXCEEDED


@both
def test_permanent_errors_end_waiting_at_once(fake: FakeShaperouter, ask: Ask) -> None:
    fake.before_models = fake.fail(grpc.StatusCode.UNAUTHENTICATED, "the token is missing")
    with pytest.raises(UnauthenticatedError):
        ask(fake.address, "wait_until_ready", "demo")


def test_closing_the_client_ends_waiting(unused_address: str) -> None:
    client = Client(unused_address)
    waiting = threading.Event()
    failures: list[BaseException] = []

    def wait() -> None:
        try:
            client.wait_until_ready(on_wait=lambda lack: waiting.set())
        except (CallCancelledError, RuntimeError) as error:
            failures.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    assert waiting.wait(TIMEOUT)
    client.close()
    thread.join(TIMEOUT)
    assert len(failures) == 1


# The command.


def test_closing_the_asyncio_client_ends_waiting(unused_address: str) -> None:
    async def scenario() -> None:
        client = AsyncClient(unused_address)
        waiting = asyncio.Event()
        task = asyncio.create_task(client.wait_until_ready(on_wait=lambda _: waiting.set()))
        await asyncio.wait_for(waiting.wait(), TIMEOUT)
        await client.close()
        with pytest.raises(CallCancelledError):
            await asyncio.wait_for(task, TIMEOUT)

    asyncio.run(scenario())


def test_command_prints_ready(fake: FakeShaperouter) -> None:
    for options in ([], ["--wait"], ["--model", "demo"]):
        result = run(fake, "ready", *options)
        assert (result.exit_code, result.stdout, result.stderr) == (0, "ready\n", "")


def test_command_prints_what_is_missing(fake: FakeShaperouter) -> None:
    fake.set_ready(False)
    result = run(fake, "ready")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "Error: a model has no ready worker yet\n"


@pytest.mark.usefixtures("patient_checks")
def test_command_waits_no_longer_than_its_timeout(unused_address: str) -> None:
    options = ["ready", "--wait", "--timeout", "0.5", "--address", unused_address]
    result = CliRunner().invoke(cli, options)
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: not ready within 0.5 s: no Shaperouter at ")


def test_command_prints_json(fake: FakeShaperouter, unused_address: str) -> None:
    assert json.loads(run(fake, "ready", "--json").stdout) == {"ready": True, "reason": None}
    result = CliRunner().invoke(cli, ["ready", "--json", "--address", unused_address])
    told = json.loads(result.stdout)
    assert (result.exit_code, told["ready"]) == (1, False)
    assert told["reason"].startswith("no Shaperouter at ")


def test_command_refuses_an_unknown_model(fake: FakeShaperouter) -> None:
    result = run(fake, "ready", "--wait", "--model", "other")
    assert result.exit_code == 1
    assert "no model 'other'" in result.stderr
