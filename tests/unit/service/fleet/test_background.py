"""Loops that follow the fleet survive any error in one of their iterations."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from harness.logs import capture_logs
from harness.waiting import TIMEOUT
from shaperouter_service.fleet import (
    compiling,
    discovered,
    discovery,
    recycling,
    warning_of_spent_budgets,
)

Until = Callable[[Callable[[], bool]], Awaitable[None]]


class Views:
    """A fleet and its catalog, whose first use fails."""

    def __init__(self) -> None:
        self.catalog = self
        self.asked = 0

    async def changes(self) -> AsyncIterator[None]:
        while True:
            yield
            await asyncio.sleep(0)

    def views(self) -> dict[Any, Any]:
        self.asked += 1
        if self.asked == 1:
            raise RuntimeError("it went wrong")
        return {}


def recycles(fleet: Any) -> AbstractAsyncContextManager[None]:
    nothing: Any = None
    return recycling(fleet, nothing, nothing, grace=0.0)


@pytest.mark.parametrize("follows", [compiling, recycles, warning_of_spent_budgets])
def test_what_goes_wrong_in_a_round_is_told_and_the_next_round_comes(
    follows: Callable[[Any], AbstractAsyncContextManager[None]],
    until: Until,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in ("compiling", "recycling"):
        # Not by its full name, which is that of a function, too.
        loops = importlib.import_module(f"shaperouter_service.fleet.{module}")
        monkeypatch.setattr(loops, "INTERVAL", 0.0)

    async def scenario() -> None:
        fleet = Views()
        async with asyncio.timeout(TIMEOUT), follows(fleet):
            await until(lambda: fleet.asked > 1)

    with capture_logs() as logs:
        asyncio.run(scenario())
    assert [entry["event"] for entry in logs] == ["iteration failed"]


def test_what_goes_wrong_with_a_name_does_not_end_discovery(
    until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "RESOLVE_INTERVAL", 0.0)
    answers: list[Collection[str] | Exception] = [RuntimeError("it went wrong"), ["10.0.0.1"]]
    told: list[list[str]] = []

    class Fleet:
        def set_addresses(self, addresses: Collection[str]) -> None:
            told.append(list(addresses))

    async def resolve(host: str) -> Collection[str]:
        answer = answers[0] if len(answers) == 1 else answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def scenario() -> None:
        async with asyncio.timeout(TIMEOUT), discovered(Fleet(), ["host:1"], resolve):
            await until(lambda: told[-1] == ["10.0.0.1:1"])

    asyncio.run(scenario())
