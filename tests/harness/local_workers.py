"""Local workers in fake processes, and their fleet."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from harness.fake_model import SLOTS
from harness.fake_process import FakeProcess, FakeProcesses
from harness.fake_worker import FakeWorker
from harness.router import wait_until
from shaperouter.v1 import graph_pb2, signature_pb2
from shaperouter_service.fleet import Fleet, OverloadGuard
from shaperouter_service.generation.resolution import neutral_options
from shaperouter_service.generation.run_events import NewTokens, RunEvent
from shaperouter_service.generation.run_request import RunRequest
from shaperouter_service.routing.catalog import Catalog
from shaperouter_service.supervision import WorkerProcesses
from shaperouter_service.telemetry.fleet import FleetMetrics

TOKENS = [5, 7, 8]
# Seconds: longer than a test may take.
FOREVER = 600.0

# The function of this name hides it.
recycling_module = importlib.import_module("shaperouter_service.fleet.recycling")


def shape(rows: int, length: int) -> signature_pb2.Signature:
    kind = signature_pb2.GRAPH_KIND_DECODE
    return signature_pb2.Signature(model="tiny", kind=kind, rows=rows, length=length, beams=1)


EARNING, IDLE, MISSED = shape(2, 32), [shape(1, 16), shape(1, 32)], shape(SLOTS, 32)


def spend_budget(worker: FakeWorker) -> None:
    """Fills a worker's budget with worthless graphs, so that it has no room for a missing one."""
    earning = worker.graph(EARNING)
    earning.recent_served_seconds = 100.0
    missed = graph_pb2.Graph(
        signature=MISSED,
        worker=worker.name,
        state=graph_pb2.GRAPH_STATE_COLD,
        recent_missed_seconds=200.0,
    )
    worker.graphs += [earning, *map(worker.graph, IDLE), missed]
    worker.budget.exhausted, worker.budget.room = True, 0


class Local:
    """Local workers in fake processes, and their fleet."""

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
            on_message=self.processes.record_message,
        )

    @property
    def started(self) -> list[FakeProcess]:
        """All processes so far, oldest first."""
        return self.fakes.started

    @contextlib.asynccontextmanager
    async def running(self, workers: int) -> AsyncIterator[None]:
        """Runs the fleet inside of the context, and waits until its workers are connected."""
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self.fakes.close)
            supervision = asyncio.create_task(self.processes.supervise())
            stack.callback(supervision.cancel)
            await stack.enter_async_context(self.fleet.connected())
            self.fleet.set_addresses(self.processes.addresses)
            await wait_until(lambda: len(self.catalog.workers("tiny")) == workers)
            yield

    def generate(self) -> AsyncIterator[tuple[str, RunEvent]]:
        options = neutral_options(max_new_tokens=9)
        return self.fleet.run(RunRequest(model="tiny", token_ids=[1], options=options), None)

    async def tokens(self) -> list[int]:
        """The tokens of a whole run."""
        return [
            token
            async for _, event in self.generate()
            if isinstance(event, NewTokens)
            for token in event.token_ids
        ]

    async def process_of_a_run(self) -> FakeProcess:
        """The worker that a request is routed to."""
        processes = list(self.started)
        before = [len(process.worker.requests) for process in processes]
        assert await self.tokens() == TOKENS
        (process,) = (
            process
            for process, served in zip(processes, before, strict=True)
            if len(process.worker.requests) > served
        )
        return process

    def recycled(self, result: str) -> float:
        """Number of attempts with this result."""
        labels = {"result": result}
        name = "shaperouter_workers_recycled_total"
        return self.registry.get_sample_value(name, labels) or 0.0

    async def spend(self, process: FakeProcess) -> None:
        spend_budget(process.worker)
        await process.worker.change()

    async def successor(self, count: int = 1) -> FakeProcess:
        """Waits until the `count`-th successor has started and sent its first snapshot."""

        def successors() -> list[FakeProcess]:
            return [process for process in self.started if process.options]

        await wait_until(lambda: len(successors()) >= count)
        found = successors()[count - 1]
        await wait_until(lambda: bool(found.worker.told))
        return found


Scenario = Callable[[Local], Awaitable[None]]
Recycle = Any


def cold_successors(process: FakeProcess) -> None:
    """Makes successors slow to warm up."""
    process.worker.warm = not process.options


def slow_successors(process: FakeProcess) -> None:
    """Makes successors compile until a test releases them."""
    if process.options:
        process.worker.compiling_ends.clear()


def cold_and_slow_successors(process: FakeProcess) -> None:
    cold_successors(process)
    slow_successors(process)


def never_answering_successors(process: FakeProcess) -> None:
    """Makes successors block on requests for graphs until they die."""
    if process.options:
        process.worker.before_compile_request = process.worker.hold
