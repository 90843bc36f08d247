"""Local workers and their successors, explored by a state machine: any order of deaths and delays.

Fleet, recycling and supervision are the service's own; the processes are played.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from unittest import mock

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from prometheus_client import CollectorRegistry

from harness.fake_link import FakeLink
from harness.routing import LADDERS, MODEL, decode
from harness.virtual_time import VirtualLoop
from shaperouter_service.fleet import Fleet, OverloadGuard, connections, recycling
from shaperouter_service.fleet.link import Loss
from shaperouter_service.fleet.recycling import INTERVAL, LAST_PAUSE, MAKE_LIMIT, WARM_LIMIT
from shaperouter_service.routing.catalog import Catalog
from shaperouter_service.routing.served_model import ServedModel
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.routing.snapshots import (
    BudgetReport,
    GraphReport,
    GraphState,
    LaneReport,
    Snapshot,
)
from shaperouter_service.supervision import WorkerProcess, WorkerProcesses
from shaperouter_service.supervision.worker_process import LAST_BACKOFF
from shaperouter_service.telemetry.fleet import FleetMetrics

NAMES = ("worker-0", "worker-1")
FIRST = LADDERS.first(MODEL)
EARNING, MISSED = decode(2, 64), decode(4, 64)
IDLE = (decode(1, 64), decode(1, 128), decode(2, 128))
GRACE, HANG_TIMEOUT = 30.0, 7200.0
INDEX = st.integers(0, 7)


class PlayedProcess:
    """A process of a worker, with the contract of `asyncio.subprocess.Process`."""

    pids = itertools.count(1)

    def __init__(self, name: str, address: str, options: Sequence[str]) -> None:
        self.pid = next(self.pids)
        self.name, self.address, self.options = name, address, options
        self.returncode: int | None = None
        self.terminated = self.warm = self.spent = self.reports = self.hangs = False
        # Called at its end, which breaks its connection.
        self.on_end: Callable[[], None] = lambda: None
        self.asked: list[Signature] = []
        self.made: list[Signature] = [*FIRST]
        self._ended = asyncio.Event()

    async def wait(self) -> int:
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def terminate(self) -> None:
        self.terminated = True

    def kill(self) -> None:
        self.end(-9)

    def end(self, code: int) -> None:
        if self.returncode is None:
            self.returncode = code
            self._ended.set()
            self.on_end()

    @property
    def alive(self) -> bool:
        return self.returncode is None

    def snapshot(self) -> Snapshot:
        """Its state: all budget is gone if it is spent, mostly on graphs that save nothing."""
        made = [*self.made, *((EARNING, *IDLE) if self.spent else ())]
        graphs = [
            GraphReport(
                signature=signature,
                worker=self.name,
                state=GraphState.READY,
                recent_served_seconds=100.0 if signature == EARNING else 0.0,
            )
            for signature in dict.fromkeys(made)
        ]
        if self.spent:
            missed = GraphReport(
                signature=MISSED,
                worker=self.name,
                state=GraphState.COLD,
                recent_missed_seconds=200.0,
            )
            graphs.append(missed)
        return Snapshot(
            worker=self.name,
            incarnation=str(self.pid),
            models=[ServedModel(name=MODEL, ladders=LADDERS, weight_bytes=1)],
            graphs=graphs,
            lanes=[
                LaneReport(model=MODEL, beams=lane.beams, total_slots=lane.decode_rows.maximum)
                for lane in LADDERS.lanes
            ],
            warm=self.warm,
            budget=BudgetReport(room=0 if self.spent else 100, exhausted=self.spent, threads=1),
        )


class SuccessorHandOver(RuleBasedStateMachine):
    """Two local workers, whose processes start, replace each other and die in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualLoop()
        self.stack = contextlib.ExitStack()
        self.stack.enter_context(mock.patch.object(connections, "WorkerLink", FakeLink))
        self.processes: list[PlayedProcess] = []
        self.spawn_fails = 0
        self.loop.call(self._start())

    async def _start(self) -> None:
        self.local = WorkerProcesses(NAMES, Path("/local"), self._make)
        metrics = FleetMetrics(CollectorRegistry())
        self.fleet = Fleet(
            Catalog([MODEL]),
            metrics=metrics,
            overload=OverloadGuard(float("inf")),
            on_message=self.local.record_message,
        )
        self.supervision = self.loop.create_task(self.local.supervise())
        self.fleet.set_addresses(self.local.addresses)
        self.recycling = recycling(self.fleet, self.local, metrics, grace=GRACE)
        await self.recycling.__aenter__()

    def _make(self, name: str, address: str) -> WorkerProcess:
        async def spawn(options: Sequence[str]) -> PlayedProcess:
            if self.spawn_fails:
                self.spawn_fails -= 1
                raise BlockingIOError("Resource temporarily unavailable")
            here = [process for process in self.alive if process.address == address]
            assert not here, "a second process at one address"
            process = PlayedProcess(name, address, options)
            process.on_end = lambda: self._lose(process)
            self.processes.append(process)
            return process

        return WorkerProcess(name, address, spawn, hang_timeout=HANG_TIMEOUT)

    # --- What happens ------------------------------------------------------------------------

    @initialize()
    def start(self) -> None:
        """Both workers are ready."""
        self.be_well()

    @rule()
    def be_well(self) -> None:
        """All processes are warm and have made what was requested."""
        for process in self.alive:
            process.warm = True
            process.made += process.asked
            process.asked.clear()
            self._report(process)
        self.loop.pass_time(INTERVAL)

    @rule(index=INDEX)
    def report(self, index: int) -> None:
        """A process sends its state."""
        if process := self.pick(index):
            self._report(process)

    @rule(index=INDEX)
    def warm_up(self, index: int) -> None:
        """A process has made its first graphs."""
        if process := self.pick(index):
            process.warm = True
            self._report(process)

    @rule(index=INDEX)
    def make(self, index: int) -> None:
        """A process has made a graph that was requested."""
        if (process := self.pick(index)) and process.asked:
            process.made.append(process.asked.pop(0))
            self._report(process)

    @rule(index=INDEX)
    def spend(self, index: int) -> None:
        """The budget of a worker is spent."""
        process = self.pick(index)
        if process and process.warm and not process.terminated:
            process.spent = True
            self._report(process)
            self.loop.pass_time(INTERVAL)

    @rule(index=INDEX)
    def die(self, index: int) -> None:
        """A process dies."""
        if process := self.pick(index):
            self._end(process, -11)

    @rule(index=INDEX)
    def hang(self, index: int) -> None:
        """A process sends nothing any more."""
        if process := self.pick(index):
            process.hangs = True

    @rule(index=INDEX)
    def end_runs(self, index: int) -> None:
        """The last run of a draining process ends, and the process with it."""
        process = self.pick(index)
        if process and process.terminated:
            self._end(process, 0)

    @rule(count=st.integers(1, 3))
    def run_short(self, count: int) -> None:
        """The system cannot start processes for a while."""
        self.spawn_fails = count

    @rule(seconds=st.sampled_from([1.0, 1.0, GRACE + 6, WARM_LIMIT, LAST_PAUSE]))
    def wait(self, seconds: float) -> None:
        """Time passes; healthy processes say that they are alive."""
        for _ in range(int(seconds // (HANG_TIMEOUT / 2))):
            self._heartbeats()
            self.loop.pass_time(HANG_TIMEOUT / 2)
        self._heartbeats()
        self.loop.pass_time(seconds % (HANG_TIMEOUT / 2))

    def _heartbeats(self) -> None:
        for process in self.alive:
            if process.reports:
                self._report(process)

    def _report(self, process: PlayedProcess) -> None:
        link = self.link(process)
        if link is None or not process.alive or process.terminated or process.hangs:
            return

        def compile_graphs(signatures: Sequence[Signature]) -> Mapping[Signature, str]:
            process.asked += [graph for graph in signatures if graph not in process.made]
            return {}

        process.reports, link.on_compile = True, compile_graphs
        link.report(process.snapshot())
        self.loop.settle()

    def _end(self, process: PlayedProcess, code: int) -> None:
        process.end(code)
        self.loop.settle()

    def _lose(self, process: PlayedProcess) -> None:
        if link := self.link(process):
            link.lose(Loss.LOST if process.returncode else Loss.DRAINING)

    # --- What must hold ----------------------------------------------------------------------

    @property
    def alive(self) -> list[PlayedProcess]:
        return [process for process in self.processes if process.alive]

    def pick(self, index: int) -> PlayedProcess | None:
        return self.alive[index % len(self.alive)] if self.alive else None

    def link(self, process: PlayedProcess) -> FakeLink | None:
        links = {link.address: link for link in self.fleet._watching}
        return links.get(process.address)  # type: ignore[return-value]

    @invariant()
    def no_worker_has_more_than_two_processes(self) -> None:
        successors = [process for process in self.alive if process.options]
        for name in NAMES:
            assert sum(process.name == name for process in self.alive) <= 2
        # One worker after another.
        current = self.local._current
        waiting = [each for each in successors if current[each.name].address != each.address]
        assert len([each for each in waiting if not each.terminated]) <= 1

    @invariant()
    def every_process_is_listed(self) -> None:
        assert {process.address for process in self.alive} <= set(self.local.addresses)

    @invariant()
    def the_older_process_serves_until_it_is_ended(self) -> None:
        for name, worker in self.fleet.catalog.active_workers().items():
            older, *younger = [
                process
                for process in self.alive
                if process.name == name and self.fleet.incarnation_at(process.address)
            ]
            if younger and older.warm and not older.terminated:
                assert worker.incarnation == str(older.pid)

    @invariant()
    def a_worker_is_ended_only_for_a_successor_that_is_ready(self) -> None:
        for process in self.alive:
            if process.terminated and self.local._current[process.name].address != process.address:
                heirs = [
                    each for each in self.processes if each.options and each.name == process.name
                ]
                # It may have died since; or the process is itself a successor that was given up.
                assert process.options or any(each.warm for each in heirs)

    def teardown(self) -> None:
        try:
            self._recover()
            self.loop.call(self._stop())
            assert not self.alive
        finally:
            self.loop.stop_all()
            self.stack.close()

    def _recover(self) -> None:
        """Once processes are healthy, each worker has one that serves, and no others."""
        self.spawn_fails = 0
        for _ in range(3):
            for process in self.alive:
                process.spent = process.hangs = False
                if process.terminated:
                    self._end(process, 0)
            self.wait(LAST_BACKOFF + 1)
            for process in self.alive:
                process.warm = True
                self._report(process)
                while process.alive and process.asked:
                    process.made.append(process.asked.pop(0))
                    self._report(process)
        self.wait(MAKE_LIMIT)
        assert sorted(process.name for process in self.alive if not process.terminated) == list(
            NAMES
        )
        assert self.fleet.catalog.ready

    async def _stop(self) -> None:
        self.fleet.end_changes()
        await self.recycling.__aexit__(None, None, None)
        self.supervision.cancel()
        for process in self.alive:
            process.end(0)


SuccessorHandOver.TestCase.settings = settings(
    max_examples=30, stateful_step_count=25, deadline=None
)
TestSuccessorHandOver = SuccessorHandOver.TestCase
