"""Connections to workers that a test plays, with the contract of `WorkerLink`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from typing import Any

from shaperouter_service.fleet.link import Loss, RunInterruptedError
from shaperouter_service.generation.run_events import RunCompletion, RunEvent
from shaperouter_service.generation.run_request import RunRequest
from shaperouter_service.routing.deployments import Deployment, Orders
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.routing.snapshots import Snapshot


class FakeRun:
    """A run on a worker: what was requested, and what the worker does with it."""

    def __init__(self, request: RunRequest) -> None:
        self.request = request
        self.events: asyncio.Queue[RunEvent | Exception] = asyncio.Queue()

    def send(self, *events: RunEvent | Exception) -> None:
        """Sends events; an exception ends the run."""
        for event in events:
            self.events.put_nowait(event)


class FakeLink:
    """A connection; `report` and `lose` do what the worker's Watch stream does."""

    def __init__(
        self,
        address: str,
        *,
        on_message: Callable[[str], None],
        on_snapshot: Callable[[Any, Snapshot], None],
        on_lost: Callable[[Any, Loss], None],
        router_id: str = "",
        tls: Any = None,
    ) -> None:
        self.address = address
        self.watches = 1
        self.orders: list[Orders] = []
        self.deploys = asyncio.Event()  # lets orders arrive
        self.deploys.set()
        self.runs: list[FakeRun] = []
        # Takes a request for graphs, and returns those that are refused.
        self.on_compile: Callable[[Sequence[Signature]], Mapping[Signature, str]] = lambda _: {}
        self._on_message = on_message
        self._on_snapshot, self._on_lost = on_snapshot, on_lost

    @property
    def running(self) -> int:
        return len(self.runs)

    async def watch(self) -> None:
        await asyncio.get_running_loop().create_future()

    async def close(self) -> None:
        """Nothing is open."""

    def report(self, snapshot: Snapshot) -> None:
        """The worker sends its state."""
        self._on_message(self.address)
        self._on_snapshot(self, snapshot)

    def lose(self, loss: Loss) -> None:
        """The worker's stream ends."""
        self._on_lost(self, loss)
        self.watches += 1

    def interrupt(self, loss: Loss) -> None:
        """All runs end without a result."""
        for run in self.runs:
            run.send(RunInterruptedError(self.address, loss))

    async def run(
        self, request: RunRequest, seconds_left: float | None
    ) -> AsyncGenerator[RunEvent, None]:
        run = FakeRun(request)
        self.runs.append(run)
        try:
            while True:
                event = await run.events.get()
                if isinstance(event, Exception):
                    raise event
                yield event
                if isinstance(event, RunCompletion):
                    return
        finally:
            self.runs.remove(run)

    async def deploy(self, orders: Orders) -> list[Deployment]:
        self.orders.append(orders)
        await self.deploys.wait()
        return []

    async def request_compile(self, signatures: Iterable[Signature]) -> Mapping[Signature, str]:
        return self.on_compile(list(signatures))
