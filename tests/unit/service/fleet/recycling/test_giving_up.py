"""A successor that fails is given up, and the worker that it should replace keeps serving."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harness.fake_process import FakeProcess
from harness.local_workers import (
    MISSED,
    Local,
    Recycle,
    cold_successors,
    never_answering_successors,
    recycling_module,
    slow_successors,
)
from harness.logs import capture_logs
from harness.router import wait_until
from harness.waiting import TIMEOUT


async def given_up(local: Local, old: FakeProcess) -> None:
    """Waits until a successor is given up, and checks that it has left nothing behind."""
    await wait_until(lambda: local.recycled("given_up") == 1)
    assert await local.process_of_a_run() is old
    assert not old.terminated
    assert len(local.processes.addresses) == 1
    assert [process for process in local.started if process.returncode is None] == [old]


def reason_of_giving_up(recycle: Recycle, at_birth: Callable[[FakeProcess], None]) -> str:
    """The reports about a successor that starts with this preparation and fails."""

    async def scenario(local: Local) -> None:
        (old,) = local.started
        local.fakes.at_birth = at_birth
        await local.spend(old)
        await given_up(local, old)

    with capture_logs() as lines:
        recycle(scenario)
    return reason_told(lines)


def reason_told(lines: list[Any]) -> str:
    (line,) = (line for line in lines if line["event"] == "worker not recycled")
    assert line["worker"] == "worker-0"
    assert line["retry_seconds"] == recycling_module.FIRST_PAUSE
    return str(line["reason"])


@pytest.mark.parametrize("warm", [False, True], ids=["before it is warm", "while it compiles"])
def test_a_successor_that_dies_is_given_up(
    recycle: Recycle, warm: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The news of its end may be late on a busy machine.
    monkeypatch.setattr(recycling_module, "END_NEWS", TIMEOUT)

    def at_birth(process: FakeProcess) -> None:
        slow_successors(process)
        process.worker.warm = warm

    async def scenario(local: Local) -> None:
        (old,) = local.started
        local.fakes.at_birth = at_birth
        await local.spend(old)
        new = await local.successor()
        await wait_until(lambda: bool(new.worker.wanted) == warm)
        await new.die(-11)
        await given_up(local, old)

    with capture_logs() as lines:
        recycle(scenario)
    assert reason_told(lines) == "its successor died: SIGSEGV"


def test_a_successor_that_dies_over_what_it_is_asked_for_is_said_to_have_died(
    recycle: Recycle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the call that asks it is lost before there is news of its end."""
    # The news may be late on a busy machine.
    monkeypatch.setattr(recycling_module, "END_NEWS", TIMEOUT)

    async def scenario(local: Local) -> None:
        (old,) = local.started
        local.fakes.at_birth = never_answering_successors
        await local.spend(old)
        new = await local.successor()
        await wait_until(lambda: bool(new.worker.wanted))
        await new.die(-11)
        await given_up(local, old)

    with capture_logs() as lines:
        recycle(scenario)
    assert reason_told(lines) == "its successor died: SIGSEGV"


def test_a_successor_that_cannot_be_asked_for_graphs_is_given_up(
    recycle: Recycle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recycling_module, "END_NEWS", 0.01)

    def at_birth(process: FakeProcess) -> None:
        if process.options:
            process.worker.before_compile_request = RuntimeError("it does not understand")

    reason = reason_of_giving_up(recycle, at_birth)
    assert reason.startswith("its successor could not be asked to compile: ")


def test_a_successor_that_does_not_get_warm_is_given_up(
    recycle: Recycle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recycling_module, "WARM_LIMIT", 0.2)

    assert (
        reason_of_giving_up(recycle, cold_successors) == "its successor was not ready after 0.2 s"
    )


def test_a_successor_without_room_is_given_up(recycle: Recycle) -> None:
    def at_birth(process: FakeProcess) -> None:
        process.worker.refusals[MISSED.length] = "the worker's budget is spent"

    assert reason_of_giving_up(recycle, at_birth) == (
        "its successor has no room for tiny decode 4x32: the worker's budget is spent"
    )


def test_a_successor_that_finds_no_room_when_it_comes_to_a_graph_is_given_up(
    recycle: Recycle,
) -> None:
    def at_birth(process: FakeProcess) -> None:
        process.worker.late_refusals[MISSED.length] = "the worker's budget is spent"

    assert reason_of_giving_up(recycle, at_birth) == (
        "its successor has no room for tiny decode 4x32: the worker's budget is spent"
    )


def test_no_successor_is_started_that_the_container_has_no_memory_for(
    recycle: Recycle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recycling_module, "memory_left", lambda: 1_500_000_000)

    async def scenario(local: Local) -> None:
        (old,) = local.started
        old.worker.budget.memory_bytes = 2_000_000_000
        await local.spend(old)
        await given_up(local, old)
        assert local.started == [old]

    with capture_logs() as lines:
        recycle(scenario)
    assert reason_told(lines) == (
        "a second process would need up to 2.0 GB, but the container has 1.5 GB left; raise its "
        "memory limit"
    )


def test_a_successor_that_cannot_be_started_is_given_up(recycle: Recycle) -> None:
    def at_birth(process: FakeProcess) -> None:
        raise OSError("no room for a process")

    assert (
        reason_of_giving_up(recycle, at_birth)
        == "its successor could not be started: no room for a process"
    )


def test_after_a_successor_was_given_up_the_next_waits_longer_each_time(
    recycle: Recycle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recycling_module, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(recycling_module, "LAST_PAUSE", 0.04)

    def at_birth(process: FakeProcess) -> None:
        raise OSError("no room for a process")

    async def scenario(local: Local) -> None:
        local.fakes.at_birth = at_birth
        await local.spend(local.started[0])
        while local.recycled("given_up") < 4:
            await local.started[0].worker.change()
            await local.tokens()

    with capture_logs() as lines:
        recycle(scenario)
    pauses = [line["retry_seconds"] for line in lines if line["event"] == "worker not recycled"]
    # A fifth pause may begin before the loop above sees the fourth.
    assert pauses[:4] == [0.01, 0.02, 0.04, 0.04]
    assert set(pauses[4:]) <= {0.04}
