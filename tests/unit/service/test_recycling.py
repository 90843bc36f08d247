"""A fresh process takes the place of a worker that has spent its budget, and nobody notices."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from harness.fake_process import FakeProcess, FakeProcesses
from harness.fake_worker import SLOTS, FakeWorker
from harness.router import PATIENCE, wait_until
from shaperouter.v1 import graph_pb2, signature_pb2, worker_pb2
from shaperouter_service.errors import StartupError
from shaperouter_service.fleet import (
    Fleet,
    OverloadGuard,
    WorkerProcesses,
    recycling,
    telling_spent_budgets,
)
from shaperouter_service.fleet.processes import SUCCESSOR
from shaperouter_service.messages import ladders_from_proto, signature_to_proto
from shaperouter_service.routing.catalog import Catalog
from shaperouter_service.telemetry.fleet import FleetMetrics

TOKENS = [5, 7, 8]
# Seconds: longer than a test may take.
FOREVER = 600.0

# The function of this name hides it.
module = importlib.import_module("shaperouter_service.fleet.recycling")


def shape(rows: int, length: int) -> signature_pb2.Signature:
    kind = signature_pb2.GRAPH_KIND_DECODE
    return signature_pb2.Signature(model="tiny", kind=kind, rows=rows, length=length, beams=1)


EARNING, IDLE, MISSED = shape(2, 32), [shape(1, 16), shape(1, 32)], shape(SLOTS, 32)


def spend_budget(worker: FakeWorker) -> None:
    """Leaves a worker no room for a graph that it misses, with some that earn nothing."""
    earning = worker.graph(EARNING)
    earning.device_seconds.sum = 100.0
    missed = graph_pb2.Graph(
        signature=MISSED,
        worker=worker.name,
        state=graph_pb2.GRAPH_STATE_COLD,
        missed_seconds=200.0,
    )
    worker.graphs += [earning, *map(worker.graph, IDLE), missed]
    worker.budget.exhausted, worker.budget.room = True, 0


class Local:
    """Local workers in processes that are none, and the fleet of them."""

    def __init__(self, directory: Path, workers: int) -> None:
        self.fakes = FakeProcesses()
        names = [f"worker-{index}" for index in range(workers)]
        self.processes = WorkerProcesses(names, directory, self.fakes.make)
        self.registry = CollectorRegistry()
        self.metrics = FleetMetrics(self.registry)
        self.catalog = Catalog(["tiny"])
        self.fleet = Fleet(
            self.catalog,
            metrics=self.metrics,
            overload=OverloadGuard(FOREVER),
            on_heard=self.processes.heard,
        )

    @property
    def started(self) -> list[FakeProcess]:
        """Every process there has been, the oldest first."""
        return self.fakes.started

    @contextlib.asynccontextmanager
    async def running(self, workers: int) -> AsyncIterator[None]:
        """Runs everything inside of the context, beginning with workers that are connected."""
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self.fakes.close)
            supervision = asyncio.create_task(self.processes.supervise())
            stack.callback(supervision.cancel)
            await stack.enter_async_context(self.fleet.connected())
            self.fleet.set_addresses(self.processes.addresses)
            await wait_until(lambda: len(self.catalog.workers("tiny")) == workers)
            yield

    def generate(self) -> AsyncIterator[tuple[str, worker_pb2.RunResponse]]:
        request = worker_pb2.RunRequest(model="tiny", token_ids=[1])
        request.options.max_new_tokens = 9
        return self.fleet.run(request, None)

    async def tokens(self) -> list[int]:
        """Of a whole run."""
        return [t async for _, response in self.generate() for t in response.tokens.token_ids]

    async def process_of_a_run(self) -> FakeProcess:
        """Where a request goes now."""
        before = [len(process.worker.requests) for process in self.started]
        assert await self.tokens() == TOKENS
        after = [len(process.worker.requests) for process in self.started]
        (process,) = (
            process
            for process, served, serves in zip(self.started, before, after, strict=True)
            if serves > served
        )
        return process

    def recycled(self, result: str) -> float:
        """How many attempts ended so."""
        labels = {"result": result}
        name = "shaperouter_workers_recycled_total"
        return self.registry.get_sample_value(name, labels) or 0.0

    async def spend(self, process: FakeProcess) -> None:
        spend_budget(process.worker)
        await process.worker.change()

    async def successor(self, count: int = 1) -> FakeProcess:
        """Waits for the `count`-th successor that was started, and for its first words."""

        def successors() -> list[FakeProcess]:
            return [process for process in self.started if process.options]

        await wait_until(lambda: len(successors()) >= count)
        found = successors()[count - 1]
        await wait_until(lambda: bool(found.worker.told))
        return found


Scenario = Callable[[Local], Awaitable[None]]
Recycle = Any


@pytest.fixture
def recycle(sockets: Path, monkeypatch: pytest.MonkeyPatch) -> Recycle:
    """Plays a scenario with local workers that are recycled, without pauses to speak of."""
    monkeypatch.setattr(module, "INTERVAL", 0.005)

    def play(scenario: Scenario, *, workers: int = 1, grace: float = FOREVER) -> None:
        async def act() -> None:
            local = Local(sockets, workers)
            async with (
                asyncio.timeout(PATIENCE),
                local.running(workers),
                recycling(local.fleet, local.processes, local.metrics, grace=grace),
            ):
                await scenario(local)

        asyncio.run(act())

    return play


def cold_successors(process: FakeProcess) -> None:
    """Has successors take their time to get warm."""
    process.worker.warm = not process.options


def slow_successors(process: FakeProcess) -> None:
    """Has successors compile until a test lets them end."""
    if process.options:
        process.worker.compiling_ends.clear()


def cold_and_slow_successors(process: FakeProcess) -> None:
    cold_successors(process)
    slow_successors(process)


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
        (wish,) = new.worker.wanted
        assert list(wish.signatures) == [MISSED, EARNING]
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
        ladders = ladders_from_proto(first.ladders)
        await old.worker.make_first_graphs()

        def make_first(process: FakeProcess) -> None:
            process.worker.graphs = [
                process.worker.graph(signature_to_proto(signature))
                for signature in ladders.first("tiny")[:2]
            ]

        local.fakes.at_birth = make_first
        await local.spend(old)
        await wait_until(lambda: local.recycled("replaced") == 1)

    with capture_logs() as lines:
        recycle(scenario)
    (line,) = (line for line in lines if line["event"] == "worker recycled")
    assert line["worker"] == "worker-0"
    # Kept are the first two and the one that earns; added is the one that was missed.
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
        rest = [response async for _, response in run]
        assert rest[-1].HasField("completion")
        await wait_until(lambda: local.recycled("replaced") == 1)
        assert len(old.worker.requests) == 1
        assert len(local.processes.addresses) == 1

    recycle(scenario)


def test_what_the_old_process_cannot_finish_goes_on_at_the_successor(
    recycle: Recycle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "END_GRACE", 0.0)

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


async def given_up(local: Local, old: FakeProcess) -> None:
    """Waits until a successor is given up, and sees that nothing has come of it."""
    await wait_until(lambda: local.recycled("given_up") == 1)
    assert await local.process_of_a_run() is old
    assert not old.terminated
    assert len(local.processes.addresses) == 1
    assert [process for process in local.started if process.returncode is None] == [old]


def reason_told(lines: list[Any]) -> str:
    (line,) = (line for line in lines if line["event"] == "worker not recycled")
    assert line["worker"] == "worker-0"
    assert line["retry_seconds"] == module.FIRST_PAUSE
    return str(line["reason"])


@pytest.mark.parametrize("warm", [False, True], ids=["before it is warm", "while it compiles"])
def test_a_successor_that_dies_is_given_up(recycle: Recycle, warm: bool) -> None:
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


def test_a_successor_that_does_not_get_warm_is_given_up(
    recycle: Recycle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WARM_LIMIT", 0.2)

    async def scenario(local: Local) -> None:
        (old,) = local.started
        local.fakes.at_birth = cold_successors
        await local.spend(old)
        await given_up(local, old)

    with capture_logs() as lines:
        recycle(scenario)
    assert reason_told(lines) == "its successor was not warm after 0.2 s"


def test_a_successor_without_room_is_given_up(recycle: Recycle) -> None:
    def at_birth(process: FakeProcess) -> None:
        process.worker.refusals[MISSED.length] = "the worker's budget is spent"

    async def scenario(local: Local) -> None:
        (old,) = local.started
        local.fakes.at_birth = at_birth
        await local.spend(old)
        await given_up(local, old)

    with capture_logs() as lines:
        recycle(scenario)
    assert reason_told(lines) == (
        "its successor has no room for tiny decode 4x32: the worker's budget is spent"
    )


def test_a_successor_that_cannot_be_started_is_given_up(recycle: Recycle) -> None:
    def at_birth(process: FakeProcess) -> None:
        raise OSError("no room for a process")

    async def scenario(local: Local) -> None:
        (old,) = local.started
        local.fakes.at_birth = at_birth
        await local.spend(old)
        await given_up(local, old)

    with capture_logs() as lines:
        recycle(scenario)
    assert reason_told(lines) == "its successor could not be started: no room for a process"


def test_after_a_successor_was_given_up_the_next_waits_longer_each_time(
    recycle: Recycle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(module, "LAST_PAUSE", 0.04)

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
    assert pauses == [0.01, 0.02, 0.04, 0.04]


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
    monkeypatch.setattr(module, "MAKE_LIMIT", 0.2)

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
        assert all(
            process.returncode is not None for process in local.started if process is not new
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


# Processes.


def test_a_worker_that_cannot_start_as_configured_ends_the_supervision(sockets: Path) -> None:
    async def act() -> None:
        fakes = FakeProcesses()
        processes = WorkerProcesses(["worker-0"], sockets, fakes.make)
        supervision = asyncio.create_task(processes.supervise())
        await wait_until(lambda: bool(fakes.started))
        await fakes.started[0].die(78)
        with pytest.raises(StartupError, match="worker-0 cannot start"):
            await supervision

    asyncio.run(act())


# Where the workers are not the router's own.


def test_a_router_says_once_of_each_life_that_a_restart_would_help(sockets: Path) -> None:
    async def act() -> None:
        local = Local(sockets, 1)
        async with (
            asyncio.timeout(PATIENCE),
            local.running(1),
            telling_spent_budgets(local.fleet),
        ):
            (first,) = local.started
            for _ in range(3):
                told = first.worker.told
                await local.spend(first)
                await wait_until(lambda before=told: first.worker.told > before)
            await first.die()
            await wait_until(lambda: len(local.started) == 2)
            await wait_until(lambda: bool(local.catalog.views()))
            await local.spend(local.started[1])
            await wait_until(lambda: len(spent()) == 2)

    def spent() -> list[Any]:
        return [line for line in lines if line["event"].startswith("worker's budget is spent")]

    with capture_logs() as lines:
        asyncio.run(act())
    assert [line["worker"] for line in spent()] == ["worker-0", "worker-0"]
