"""The gate lets calls in by their values, whatever protocol they came by."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from harness.calls import a_call
from harness.logs import capture_logs
from shaperouter_service.auth import Authentication, CallLimit, Clients, token_digest
from shaperouter_service.errors import (
    ClientLimitError,
    NotOperatorError,
    ServiceError,
    StoppingError,
    TooManyCallsError,
    UnauthenticatedError,
    UnknownModelError,
)
from shaperouter_service.serving.call import Call
from shaperouter_service.serving.gate import Gate
from shaperouter_service.serving.refusal_log import RefusalLog
from shaperouter_service.system.drain import Drain
from shaperouter_service.telemetry.auth import AuthMetrics
from shaperouter_service.telemetry.refusals import RefusalMetrics

TOKEN = "a-token-of-search"


class Door:
    """A gate, and calls that pass it."""

    def __init__(self, tokens: Path | None = None, calls: int = 100) -> None:
        registry = CollectorRegistry()
        authentication = None
        if tokens:
            authentication = Authentication(Clients(tokens), AuthMetrics(registry))
        self.drain = Drain()
        refusals = RefusalLog(RefusalMetrics(registry))
        self._gate = Gate(self.drain, CallLimit(calls), refusals, authentication)

    def call(
        self, token: str | None = None, *, is_work: bool = True, for_operators: bool = False
    ) -> contextlib.AbstractContextManager[Call]:
        @contextlib.contextmanager
        def passed() -> Any:
            call = a_call()
            with self._gate.passed(call, token=token, is_work=is_work, for_operators=for_operators):
                yield call

        return passed()


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    file = tmp_path / "tokens.toml"
    file.write_text(f'[clients.search]\nsha256 = ["{token_digest(TOKEN)}"]\nmax_requests = 1\n')
    return file


def refused(enter: Callable[[], Any], error: type[ServiceError]) -> MutableMapping[str, Any]:
    """The log's line about a call that is refused with an error."""
    with capture_logs() as lines, pytest.raises(error), enter():
        pass
    (line,) = lines
    return line


def run(scenario: Callable[[], None]) -> None:
    async def act() -> None:
        scenario()

    asyncio.run(act())


def test_without_tokens_a_call_keeps_the_name_that_its_client_gave() -> None:
    def scenario() -> None:
        with Door().call() as call:
            assert (call.client, call.quota) == ("c", None)

    run(scenario)


def test_with_tokens_the_client_is_that_of_the_token(tokens: Path) -> None:
    def scenario() -> None:
        with Door(tokens).call(TOKEN) as call:
            assert call.client == "search"
            assert call.quota is not None

    run(scenario)


@pytest.mark.parametrize(
    ("token", "reason"), [(None, "MISSING_TOKEN"), ("another", "UNKNOWN_TOKEN")]
)
def test_a_call_without_a_known_token_is_refused(
    tokens: Path, token: str | None, reason: str
) -> None:
    def scenario() -> None:
        line = refused(lambda: Door(tokens).call(token, is_work=False), UnauthenticatedError)
        assert (line["event"], line["reason"]) == ("call refused", reason)
        assert line["method"] == "package.Service/Method"

    run(scenario)


def test_only_operators_may_make_some_calls(tokens: Path) -> None:
    def scenario() -> None:
        line = refused(lambda: Door(tokens).call(TOKEN, for_operators=True), NotOperatorError)
        assert line["client"] == "search"

    run(scenario)


def test_limits_count_work_alone(tokens: Path) -> None:
    def scenario() -> None:
        door = Door(tokens)
        with door.call(TOKEN):
            refused(lambda: door.call(TOKEN), ClientLimitError)
            with door.call(TOKEN, is_work=False):
                pass
        with door.call(TOKEN):
            pass

    run(scenario)


def test_a_client_leaves_room_for_others() -> None:
    def scenario() -> None:
        door = Door(calls=2)
        with door.call():
            refused(door.call, TooManyCallsError)

    run(scenario)


def test_a_drain_refuses_work_and_ends_with_the_last_call() -> None:
    async def scenario() -> None:
        door = Door()
        with door.call():
            door.drain.begin()
            refused(door.call, StoppingError)
            with door.call(is_work=False):
                pass
            drained = asyncio.create_task(door.drain.done())
            await asyncio.sleep(0)
            assert not drained.done()
        await drained

    asyncio.run(scenario())


def test_an_error_of_the_handling_has_a_line_unless_its_request_had_one() -> None:
    def fail(*, logged: bool) -> list[MutableMapping[str, Any]]:
        def handle(call: Call) -> None:
            call.logged = logged
            raise UnknownModelError("another", ["tiny"])

        with capture_logs() as lines, pytest.raises(UnknownModelError), Door().call() as call:
            handle(call)
        return lines

    def scenario() -> None:
        assert [line["code"] for line in fail(logged=False)] == ["NOT_FOUND"]
        assert fail(logged=True) == []

    run(scenario)
