"""A fresh process takes the place of a worker that has spent its budget, and nobody notices."""

from __future__ import annotations

import asyncio

import pytest

from harness.fake_process import FakeProcess
from harness.local_workers import (
    EARNING,
    FOREVER,
    MISSED,
    TOKENS,
    Local,
    Recycle,
    cold_and_slow_successors,
    never_answering_successors,
    recycling_module,
    slow_successors,
    spend_budget,
)
from harness.logs import capture_logs
from harness.router import wait_until
from shaperouter_service.generation.run_events import RunCompletion
from shaperouter_service.supervision import SUCCESSOR
from shaperouter_service.wire.signatures import signature_to_message


def test_a_worker_with_room_is_left_alone(recycle: Recycle) -> None:
    async def scenario(local: Local) -> None:
        (process,) = local.started
        spend_budget(process.worker)
        process.worker.budget.exhausted = False
        told = process.worker.told
        await process.worker.change()
        await wait_until(lambda: process.worker.told > told + 1)
        assert local.started == [process]

    recycle(scenario)


def test_requests_stay_until_the_successor_has_what_is_worth_keeping(recycle: Recycle) -> None:
    async def scenario(local: Local) -> None:
        (old,) = local.started
        local.fakes.at_birth = cold_and_slow_successors
        await local.spend(old)
        new = await local.successor()
        assert new.options == (SUCCESSOR,)
        assert await local.process_of_a_run() is old
        assert not new.worker.wanted

        new.worker.warm = True
        await new.worker.change()
        await wait_until(lambda: bool(new.worker.wanted))
        (request,) = new.worker.wanted
        assert list(request.signatures) == [MISSED, EARNING]
        assert not old.worker.wanted
        assert await local.process_of_a_run() is old
        assert not old.terminated

        new.worker.compiling_ends.set()
        await wait_until(lambda: local.recycled("replaced") == 1)
        assert old.terminated
        assert not old.killed
        assert await local.process_of_a_run() is new

    recycle(scenario)


def test_what_was_kept_and_what_was_left_is_told(recycle: Recycle) -> None:
    async def scenario(local: Local) -> None:
        (old,) = local.started
        first = local.catalog.model("tiny")
        assert first is not None
        ladders = first.ladders
        await old.worker.make_first_graphs()

        def make_first(process: FakeProcess) -> None:
            process.worker.graphs = [
                process.worker.graph(signature_to_message(signature))
                for signature in ladders.first("tiny")[:2]
            ]

        local.fakes.at_birth = make_first
        await local.spend(old)
        await wait_until(lambda: local.recycled("replaced") == 1)

    with capture_logs() as lines:
        recycle(scenario)
    (line,) = (line for line in lines if line["event"] == "worker recycled")
    assert line["worker"] == "worker-0"
    # It keeps the first two and the one that earns, and adds the one that was missed.
    assert (line["graphs_kept"], line["graphs_left_behind"], line["graphs_added"]) == (3, 2, 1)
    assert line["seconds"] > 0


def test_what_runs_on_the_old_process_ends_there(recycle: Recycle) -> None:
    async def scenario(local: Local) -> None:
        (old,) = local.started
        old.worker.script.insert(1, old.worker.hold)
        run = local.generate()
        await anext(run)
        await local.spend(old)
        await wait_until(lambda: old.terminated)
        assert (await local.process_of_a_run()).options
        assert len(local.processes.addresses) == 2
        assert local.recycled("replaced") == 0
        old.worker.released.set()
        rest = [event async for _, event in run]
        assert isinstance(rest[-1], RunCompletion)
        await wait_until(lambda: local.recycled("replaced") == 1)
        assert len(old.worker.requests) == 1
        assert len(local.processes.addresses) == 1

    recycle(scenario)


def test_what_the_old_process_cannot_finish_goes_on_at_the_successor(
    recycle: Recycle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recycling_module, "END_GRACE", 0.0)

    async def scenario(local: Local) -> None:
        (old,) = local.started
        old.worker.script.insert(1, old.worker.hold)
        run = asyncio.create_task(local.tokens())
        await wait_until(lambda: old.worker.running == 1)
        await local.spend(old)
        assert await run == TOKENS
        assert old.killed
        (request,) = (await local.successor()).worker.requests
        assert list(request.generated_token_ids) == TOKENS[:1]

    recycle(scenario, grace=0.0)


def test_no_run_fails_or_changes_while_a_worker_is_recycled(recycle: Recycle) -> None:
    async def scenario(local: Local) -> None:
        ended = False

        async def keep_running() -> int:
            runs = 0
            while not ended or runs < 3:
                assert await local.tokens() == TOKENS
                runs += 1
            return runs

        streams = [asyncio.create_task(keep_running()) for _ in range(10)]
        await local.spend(local.started[0])
        await wait_until(lambda: local.recycled("replaced") == 1)
        ended = True
        assert min(await asyncio.gather(*streams)) >= 3

    recycle(scenario)


def test_workers_are_recycled_one_at_a_time(recycle: Recycle) -> None:
    async def scenario(local: Local) -> None:
        workers = list(local.started)
        local.fakes.at_birth = slow_successors
        for process in workers:
            await local.spend(process)
        for count in (1, 2):
            successor = await local.successor(count)
            await wait_until(lambda worker=successor.worker: bool(worker.wanted))
            assert len(local.started) == len(workers) + count
            assert local.recycled("replaced") == count - 1
            successor.worker.compiling_ends.set()
            await wait_until(lambda done=count: local.recycled("replaced") == done)
        assert {process.worker.name for process in local.started[2:]} == {"worker-0", "worker-1"}

    recycle(scenario, workers=2)


def test_a_graph_that_fails_does_not_hold_up_the_successor(recycle: Recycle) -> None:
    def at_birth(process: FakeProcess) -> None:
        process.worker.failures[MISSED.length] = "out of registers"

    async def scenario(local: Local) -> None:
        local.fakes.at_birth = at_birth
        await local.spend(local.started[0])
        await wait_until(lambda: local.recycled("replaced") == 1)

    recycle(scenario)


def test_a_successor_takes_over_with_graphs_still_to_make_when_it_takes_too_long(
    recycle: Recycle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recycling_module, "MAKE_LIMIT", 0.2)

    async def scenario(local: Local) -> None:
        local.fakes.at_birth = slow_successors
        await local.spend(local.started[0])
        await wait_until(lambda: local.recycled("replaced") == 1)
        assert await local.process_of_a_run() is await local.successor()

    recycle(scenario)


def test_a_successor_that_has_taken_over_is_restarted_where_it_was_and_the_old_one_is_not(
    recycle: Recycle,
) -> None:
    async def scenario(local: Local) -> None:
        (old,) = local.started
        await local.spend(old)
        new = await local.successor()
        await wait_until(lambda: local.recycled("replaced") == 1)
        await new.die()
        assert await local.tokens() == TOKENS
        assert len(local.started) == 3
        restarted = local.started[-1]
        assert restarted.worker is new.worker
        # It makes what any worker makes at its start.
        assert restarted.options == ()

    recycle(scenario)


def test_when_the_worker_dies_its_successor_serves_though_it_is_not_ready_yet(
    recycle: Recycle,
) -> None:
    async def scenario(local: Local) -> None:
        (old,) = local.started
        local.fakes.at_birth = slow_successors
        await local.spend(old)
        new = await local.successor()
        await wait_until(lambda: bool(new.worker.wanted))
        await old.die()
        assert await local.process_of_a_run() is new
        new.worker.compiling_ends.set()
        await wait_until(lambda: local.recycled("replaced") == 1)
        assert await local.process_of_a_run() is new
        await wait_until(
            lambda: all(
                process.returncode is not None for process in local.started if process is not new
            )
        )

    recycle(scenario)


def test_a_service_that_stops_waits_for_no_successor(recycle: Recycle) -> None:
    async def scenario(local: Local) -> None:
        local.fakes.at_birth = slow_successors
        await local.spend(local.started[0])
        new = await local.successor()
        await wait_until(lambda: bool(new.worker.wanted))
        local.fleet.end_changes()
        await local.processes.stop(FOREVER)
        assert [process.returncode for process in local.started] == [0, 0]
        assert (local.recycled("replaced"), local.recycled("given_up")) == (0, 0)

    recycle(scenario)


def test_a_successor_that_ends_as_the_service_stops_is_not_given_up(recycle: Recycle) -> None:
    """Though its end cuts off the call that asks it for graphs."""

    async def scenario(local: Local) -> None:
        local.fakes.at_birth = never_answering_successors
        await local.spend(local.started[0])
        new = await local.successor()
        await wait_until(lambda: bool(new.worker.wanted))
        local.fleet.end_changes()
        await local.processes.stop(FOREVER)
        # It is forgotten in the moment in which it would be counted.
        await wait_until(lambda: new.worker.address not in local.processes.addresses)
        assert (local.recycled("replaced"), local.recycled("given_up")) == (0, 0)

    with capture_logs() as lines:
        recycle(scenario)
    assert "worker not recycled" not in [line["event"] for line in lines]
