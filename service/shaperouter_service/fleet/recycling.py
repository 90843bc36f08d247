"""Recycling: a fresh process in place of a worker that has spent its budget on too little.

TensorFlow never frees a compiled graph. When a worker may make no more, and some of those that it
has earn nothing, only another process has room for what is worth making now:

1. A successor starts beside the worker, under its name and at an address of its own. Requests go to
   the worker, as before.
2. Once it is warm, it is asked for the graphs that are worth keeping, and those there was no room
   for.
3. When it has made them, it is the worker: it is restarted should it die, and the old process is
   told to end. That drains: what runs there goes on to its end, and everything else goes to the
   successor.

A successor that dies or does not get ready is given up, and nothing has happened but that it took
some memory and time.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog

from shaperouter_service.errors import ServiceError, StoppingError
from shaperouter_service.fleet.fleet import Fleet
from shaperouter_service.fleet.processes import WorkerProcesses
from shaperouter_service.fleet.rounds import one_round
from shaperouter_service.fleet.supervisor import WorkerProcess, reason_of_end
from shaperouter_service.routing.catalog import WorkerId
from shaperouter_service.routing.policy import successor_graphs
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.routing.views import GraphState, WorkerView
from shaperouter_service.telemetry.fleet import FleetMetrics, Recycling

T = TypeVar("T")

log = structlog.get_logger(__name__)

ENDS = (GraphState.READY, GraphState.FAILED)

# Seconds between two looks at what has become worth it: nothing against what it takes.
INTERVAL = 1.0

# Seconds that a successor has to load its models and to make the graphs that cover every request.
# Large models on slow disks take minutes.
WARM_LIMIT = 900.0

# Seconds that a successor has for the graphs that are worth keeping. What it has not made by then
# it makes while it serves: there are two processes with all weights meanwhile, and the worker whose
# budget is spent serves on larger graphs than it should.
MAKE_LIMIT = 900.0

# Seconds until a worker may be recycled again: graphs that were made lately must have the time to
# earn something. Doubled each time: most reasons why a successor is given up last, and traffic that
# takes more graphs in turn than there is room for would have one recycled after the other.
FIRST_PAUSE, LAST_PAUSE = 60.0, 3600.0

# Seconds that a worker has to end by itself after its runs' grace period.
END_GRACE = 5.0

# Seconds from the first sign that a process has died, a call that is lost, to the news of its end.
END_NEWS = 1.0


class _GivenUpError(Exception):
    """A successor will not do."""


class _NotAskedError(_GivenUpError):
    """A successor could not be asked for graphs: perhaps it has died."""


@dataclass(frozen=True, kw_only=True)
class _Pause:
    """Until when a worker is left alone, on the event loop's clock, and how long that is."""

    until: float
    seconds: float


@contextlib.asynccontextmanager
async def recycling(
    fleet: Fleet, processes: WorkerProcesses, metrics: FleetMetrics, *, grace: float
) -> AsyncIterator[None]:
    """Recycles local workers inside of the context, one at a time.

    Args:
        fleet: The workers, and no others.
        processes: Theirs.
        metrics: Told of attempts.
        grace: Seconds that runs have to finish on a worker that is told to end.
    """
    task = asyncio.create_task(_Recycler(fleet, processes, metrics, grace=grace).follow())
    try:
        yield
    finally:
        task.cancel()


@contextlib.asynccontextmanager
async def telling_spent_budgets(fleet: Fleet) -> AsyncIterator[None]:
    """Says inside of the context which workers need a restart, where nobody here can do it."""
    task = asyncio.create_task(_tell_spent_budgets(fleet))
    try:
        yield
    finally:
        task.cancel()


async def _tell_spent_budgets(fleet: Fleet) -> None:
    told: set[WorkerId] = set()
    async for _ in fleet.changes():
        with one_round("telling spent budgets"):
            views = fleet.catalog.views()
            told &= views.keys()
            for life, view in views.items():
                if life not in told and successor_graphs(view):
                    told.add(life)
                    log.warning(
                        "worker's budget is spent on graphs that earn nothing: restart it",
                        worker=life.name,
                        graphs=len(_ready(view)),
                        worth_making=len(successor_graphs(view)),
                    )


class _Recycler:
    """Puts successors in place of workers. Belongs to the event loop."""

    def __init__(
        self, fleet: Fleet, processes: WorkerProcesses, metrics: FleetMetrics, *, grace: float
    ) -> None:
        self._fleet = fleet
        self._catalog = fleet.catalog
        self._processes = processes
        self._metrics = metrics
        self._grace = grace + END_GRACE
        self._pauses: dict[str, _Pause] = {}

    async def follow(self) -> None:
        """Follows the fleet until the service stops."""
        async for _ in self._fleet.changes():
            # There are no more changes then.
            with one_round("recycling"), contextlib.suppress(StoppingError):
                await self._recycle_one()
            await asyncio.sleep(INTERVAL)

    async def _recycle_one(self) -> None:
        """Recycles the first worker of which that is worth it, if any."""
        for life, view in self._catalog.views().items():
            graphs = [] if self._is_paused(life.name) else successor_graphs(view)
            if graphs:
                await self._recycle(life.name, view, graphs)
                return

    async def _recycle(self, name: str, worker: WorkerView, graphs: Sequence[Signature]) -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        log.info("worker's successor is prepared", worker=name, graphs=len(graphs))
        try:
            successor, prepared = await self._prepared(name, graphs)
        except _GivenUpError as error:
            pause = self._pause(name)
            self._metrics.workers_recycled.labels(Recycling.GIVEN_UP).inc()
            log.warning("worker not recycled", worker=name, reason=str(error), retry_seconds=pause)
            return
        await self._end(self._processes.take_over(successor))
        self._pause(name)
        self._metrics.workers_recycled.labels(Recycling.REPLACED).inc()
        # What it has not made yet, it makes.
        had, has = _ready(worker), _ready(prepared).union(graphs)
        log.info(
            "worker recycled",
            worker=name,
            graphs_kept=len(had & has),
            graphs_left_behind=len(had - has),
            graphs_added=len(has - had),
            seconds=round(loop.time() - started, 3),
        )

    async def _prepared(
        self, name: str, graphs: Sequence[Signature]
    ) -> tuple[WorkerProcess, WorkerView]:
        """Returns a successor that can take over, and what it is like.

        Raises:
            _GivenUpError: It won't.
        """
        try:
            successor = await self._processes.start_successor(name)
        except OSError as error:
            raise _GivenUpError(f"its successor could not be started: {error}") from error
        self._fleet.set_addresses(self._processes.addresses)
        try:
            view = await _unless_ended(successor, self._prepare(successor.address, graphs))
        except _GivenUpError:
            await self._end(successor)
            raise
        return successor, view

    async def _prepare(self, address: str, graphs: Sequence[Signature]) -> WorkerView:
        """Has a successor make some graphs once it is warm, and waits until it has.

        Returns:
            The successor.

        Raises:
            _GivenUpError: It does not get that far.
        """
        try:
            async with asyncio.timeout(WARM_LIMIT):
                life = await self._when(lambda: self._warm_life(address))
        except TimeoutError as error:
            raise _GivenUpError(f"its successor was not warm after {WARM_LIMIT:g} s") from error
        try:
            refused = await self._fleet.want_of(life, graphs)
        except ServiceError as error:
            reason = f"its successor could not be asked for graphs: {error}"
            raise _NotAskedError(reason) from error
        if refused:
            raise _no_room(*next(iter(refused.items())))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(MAKE_LIMIT):
                await self._when(lambda: self._having_made(life, graphs))
        view = self._catalog.view(life)
        if view is None:
            raise _GivenUpError("its successor says nothing any more")
        return view

    async def _when(self, condition: Callable[[], T | None]) -> T:
        """Waits until there is what a condition looks for, and returns it.

        Raises:
            StoppingError: The service stops.
        """
        async for _ in self._fleet.changes():
            if (found := condition()) is not None:
                return found
        raise StoppingError

    def _warm_life(self, address: str) -> WorkerId | None:
        life = self._fleet.life_at(address)
        view = self._catalog.view(life) if life else None
        return life if view and view.warm else None

    def _having_made(self, life: WorkerId, graphs: Sequence[Signature]) -> WorkerView | None:
        # Whoever is silent for a moment may be back.
        view = self._catalog.view(life)
        if view is None:
            return None
        for graph in graphs:
            if graph in view.graphs and view.graphs[graph].refused:
                raise _no_room(graph, view.graphs[graph].refused)
        return view if all(view.state(graph) in ENDS for graph in graphs) else None

    async def _end(self, process: WorkerProcess) -> None:
        """Has a process finish its runs and end, and forgets it."""
        await self._processes.end(process, self._grace)
        self._fleet.set_addresses(self._processes.addresses)

    def _is_paused(self, name: str) -> bool:
        pause = self._pauses.get(name)
        return pause is not None and asyncio.get_running_loop().time() < pause.until

    def _pause(self, name: str) -> float:
        """Leaves a worker alone for a while, longer than the last time."""
        last = self._pauses.get(name)
        seconds = min(2 * last.seconds, LAST_PAUSE) if last else FIRST_PAUSE
        until = asyncio.get_running_loop().time() + seconds
        self._pauses[name] = _Pause(until=until, seconds=seconds)
        return seconds


def _no_room(graph: Signature, reason: str) -> _GivenUpError:
    """Without room it would soon have to be replaced itself, and so on."""
    return _GivenUpError(f"its successor has no room for {graph}: {reason}")


def _ready(worker: WorkerView) -> set[Signature]:
    return {
        signature for signature, graph in worker.graphs.items() if graph.state is GraphState.READY
    }


async def _unless_ended(process: WorkerProcess, work: Coroutine[Any, Any, T]) -> T:
    """Does some work with a process for as long as that lives.

    Raises:
        _GivenUpError: It has ended.
    """
    working, ended = asyncio.create_task(work), asyncio.create_task(process.ended())
    try:
        await asyncio.wait({working, ended}, return_when=asyncio.FIRST_COMPLETED)
        lost = working.done() and isinstance(working.exception(), _NotAskedError)
        if lost:
            await asyncio.wait({ended}, timeout=END_NEWS)
        if working.done() and not (lost and ended.done()):
            return working.result()
        raise _GivenUpError(f"its successor died: {reason_of_end(ended.result())}")
    finally:
        working.cancel()
        ended.cancel()
