"""Recycling: replaces a worker whose budget is spent on graphs that are no longer worth it.

TensorFlow never frees a compiled graph. When a worker may make no more graphs, and some of its
graphs save nothing, only another process has room for those that are worth making now:

1. A successor starts beside the worker, with its name and an address of its own. Requests still go
   to the worker.
2. Once the successor is warm, it gets a request for the graphs that are worth keeping and for those
   that the worker had no room for.
3. When it has made them, it becomes the worker and is restarted if it dies. The old process
   receives SIGTERM. It drains: its runs continue to their end, and everything else goes to the
   successor.

A successor that dies or does not become ready is abandoned, which costs only its memory and
time. If the container has no memory left for a second process, none is started: the system would
kill one of the two, or the whole container.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog

from shaperouter_service.errors import ServiceError, StoppingError
from shaperouter_service.fleet.fleet import Fleet
from shaperouter_service.routing.compile_policy import successor_graphs
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.routing.snapshots import GraphState, WorkerId
from shaperouter_service.routing.views import WorkerView
from shaperouter_service.supervision import WorkerProcess, WorkerProcesses, reason_of_end
from shaperouter_service.system.background import in_background, survive_errors
from shaperouter_service.system.devices import memory_left
from shaperouter_service.system.sizes import format_size
from shaperouter_service.telemetry.fleet import FleetMetrics, Recycling

T = TypeVar("T")

log = structlog.get_logger(__name__)

ENDS = (GraphState.READY, GraphState.FAILED)

# Seconds between two checks; short compared with a recycling.
INTERVAL = 1.0

# Timeout in seconds for a successor to load its models and make the graphs that cover every
# request. Large models on slow disks take minutes.
WARM_LIMIT = 900.0

# Timeout in seconds for a successor to make the graphs that are worth keeping. It makes the rest
# while it serves. Until then two processes hold all weights, and the old worker serves on larger
# graphs than it should.
MAKE_LIMIT = 900.0

# Seconds before a worker may be recycled again, so that new graphs have time to save something.
# Doubled each time: most reasons for giving up a successor persist, and traffic that alternates
# among more graphs than there is room for would cause one recycling after another.
FIRST_PAUSE, LAST_PAUSE = 60.0, 3600.0

# Seconds that a worker has to exit after its runs' grace period.
END_GRACE = 5.0

# Seconds from the first sign that a process has died, a lost call, until its exit is reported.
END_NEWS = 1.0


class _GivenUpError(Exception):
    """The successor is abandoned."""


class _NotAskedError(_GivenUpError):
    """A successor could not be asked for graphs, perhaps because it has died."""


@dataclass(frozen=True, kw_only=True)
class _Pause:
    """When a worker's pause ends, on the event loop's clock, and how long the pause is."""

    until: float
    seconds: float


@in_background
async def recycling(
    fleet: Fleet, processes: WorkerProcesses, metrics: FleetMetrics, *, grace: float
) -> None:
    """Recycles local workers inside the context, one at a time.

    Args:
        fleet: The local workers, and no others.
        processes: Their processes.
        metrics: Counts the attempts.
        grace: Seconds that runs have to finish on a worker that has received SIGTERM.
    """
    recycler = _Recycler(fleet, processes, metrics, grace=grace)
    async for _ in fleet.changes():
        # The service is stopping: there are no more changes.
        with survive_errors("recycling"), contextlib.suppress(StoppingError):
            await recycler.recycle_one()
        await asyncio.sleep(INTERVAL)


@in_background
async def warning_of_spent_budgets(fleet: Fleet) -> None:
    """Logs inside the context which workers need a restart that this process cannot do."""
    warned: set[WorkerId] = set()
    async for _ in fleet.changes():
        with survive_errors("telling spent budgets"):
            views = fleet.catalog.views()
            warned &= views.keys()
            for worker, view in views.items():
                if worker not in warned and successor_graphs(view):
                    warned.add(worker)
                    log.warning(
                        "worker's budget is spent on graphs that save nothing: restart the worker",
                        worker=worker.name,
                        graphs=len(_ready(view)),
                        worth_making=len(successor_graphs(view)),
                    )


class _Recycler:
    """Replaces workers by successors. Only the event loop may use it."""

    def __init__(
        self, fleet: Fleet, processes: WorkerProcesses, metrics: FleetMetrics, *, grace: float
    ) -> None:
        self._fleet = fleet
        self._catalog = fleet.catalog
        self._processes = processes
        self._metrics = metrics
        self._grace = grace + END_GRACE
        self._pauses: dict[str, _Pause] = {}

    async def recycle_one(self) -> None:
        """Recycles the first worker that is worth it, if any."""
        for worker, view in self._catalog.views().items():
            graphs = [] if self._is_paused(worker.name) else successor_graphs(view)
            if graphs:
                await self._recycle(worker.name, view, graphs)
                return

    async def _recycle(self, name: str, worker: WorkerView, graphs: Sequence[Signature]) -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        log.info("started to prepare a worker's successor", worker=name, graphs=len(graphs))
        try:
            _check_memory(worker)
            successor, prepared = await self._prepared(name, graphs)
        except _GivenUpError as error:
            # A stopping service ends all its workers, in any order; the successor is not at fault.
            if self._fleet.changes_ended:
                raise StoppingError from error
            pause = self._pause(name)
            self._metrics.workers_recycled.labels(Recycling.GIVEN_UP).inc()
            log.warning("worker not recycled", worker=name, reason=str(error), retry_seconds=pause)
            return
        await self._end(self._processes.take_over(successor))
        self._pause(name)
        self._metrics.workers_recycled.labels(Recycling.REPLACED).inc()
        # The successor makes the remaining graphs while it serves.
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
        """Returns a successor that can take over, and its state.

        Raises:
            _GivenUpError: The successor is abandoned.
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
        """Requests graphs from a successor once it is warm, and waits until it has made them.

        Returns:
            The state of the successor.

        Raises:
            _GivenUpError: It does not become warm or ready.
        """
        try:
            async with asyncio.timeout(WARM_LIMIT):
                successor = await self._when(lambda: self._warm_successor(address))
        except TimeoutError as error:
            raise _GivenUpError(f"its successor was not ready after {WARM_LIMIT:g} s") from error
        try:
            refused = await self._fleet.request_compile_of(successor, graphs)
        except ServiceError as error:
            reason = f"its successor could not be asked to compile: {error}"
            raise _NotAskedError(reason) from error
        if refused:
            raise _no_room(*next(iter(refused.items())))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(MAKE_LIMIT):
                await self._when(lambda: self._having_made(successor, graphs))
        view = self._catalog.view(successor)
        if view is None:
            raise _GivenUpError("its successor stopped reporting")
        return view

    async def _when(self, condition: Callable[[], T | None]) -> T:
        """Waits until a condition returns a value, and returns it.

        Raises:
            StoppingError: The service is stopping.
        """
        async for _ in self._fleet.changes():
            if (found := condition()) is not None:
                return found
        raise StoppingError

    def _warm_successor(self, address: str) -> WorkerId | None:
        successor = self._fleet.incarnation_at(address)
        view = self._catalog.view(successor) if successor else None
        # Models that were loaded at run time, it gets from this router.
        is_warm = view and view.warm and successor and self._catalog.is_caught_up(successor)
        return successor if is_warm else None

    def _having_made(self, successor: WorkerId, graphs: Sequence[Signature]) -> WorkerView | None:
        # A worker that is silent for a moment may return.
        view = self._catalog.view(successor)
        if view is None:
            return None
        for graph in graphs:
            if graph in view.graphs and view.graphs[graph].refused:
                raise _no_room(graph, view.graphs[graph].refused)
        return view if all(view.state(graph) in ENDS for graph in graphs) else None

    async def _end(self, process: WorkerProcess) -> None:
        """Stops a process after its runs have finished, and removes it."""
        await self._processes.end(process, self._grace)
        self._fleet.set_addresses(self._processes.addresses)

    def _is_paused(self, name: str) -> bool:
        pause = self._pauses.get(name)
        return pause is not None and asyncio.get_running_loop().time() < pause.until

    def _pause(self, name: str) -> float:
        """Pauses the recycling of a worker, for longer than the last time."""
        last = self._pauses.get(name)
        seconds = min(2 * last.seconds, LAST_PAUSE) if last else FIRST_PAUSE
        until = asyncio.get_running_loop().time() + seconds
        self._pauses[name] = _Pause(until=until, seconds=seconds)
        return seconds


def _check_memory(worker: WorkerView) -> None:
    """Checks that the container has memory for a second process like this one.

    Raises:
        _GivenUpError: It has not.
    """
    left = memory_left()
    if left is not None and worker.memory_bytes > left:
        raise _GivenUpError(
            f"a second process would need up to {format_size(worker.memory_bytes)}, but the "
            f"container has {format_size(left)} left; raise its memory limit"
        )


def _no_room(graph: Signature, reason: str) -> _GivenUpError:
    """The error if a successor has no room: it would soon have to be replaced itself."""
    return _GivenUpError(f"its successor has no room for {graph}: {reason}")


def _ready(worker: WorkerView) -> set[Signature]:
    return {
        signature for signature, graph in worker.graphs.items() if graph.state is GraphState.READY
    }


async def _unless_ended(process: WorkerProcess, work: Coroutine[Any, Any, T]) -> T:
    """Does some work with a process, and stops if the process ends.

    Raises:
        _GivenUpError: The process has ended.
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
