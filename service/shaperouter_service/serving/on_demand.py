"""Models that are loaded when a request names them, and unloaded when they are idle.

Several routers may do this at the same time. They agree because deployments are compared
(`routing.deployments`), and because workers report how long each revision has been idle.
"""

import asyncio
import contextlib
import time
from collections import Counter
from dataclasses import dataclass
from weakref import WeakValueDictionary

import structlog

from shaperouter_service.errors import (
    LostWhileLoadingError,
    ModelNotLoadedError,
    OtherChangeError,
    ServiceError,
    StillLoadingError,
    StoppingError,
    UnknownModelError,
)
from shaperouter_service.fleet import Fleet
from shaperouter_service.fleet.deadlines import worker_by
from shaperouter_service.routing.deployments import Deployment, RevisionState, public_name
from shaperouter_service.routing.on_demand import OnDemandLimits
from shaperouter_service.serving.repository import Repository
from shaperouter_service.system.background import in_background, survive_errors
from shaperouter_service.system.sizes import format_size

# Seconds for which a model that could not be loaded is refused without another attempt.
RETRY = 10.0

# The same for a model whose load has lost a worker twice: it may need more memory than there is,
# and would kill workers again and again.
LOST_RETRY = 600.0

# Seconds that another router has to finish what it began, once no worker is loading the model.
TAKE_OVER = 5.0

# Minimum seconds without a request before a model makes room for another. Shorter, models that are
# used by turns would be loaded and unloaded for every request.
MIN_IDLE = 1.0

# Seconds between two looks for idle models, and between two looks for room.
INTERVAL = 1.0

# Seconds for which loads that fit pass one that waits for memory. After that it is first, because
# models that are used all the time could keep it waiting forever.
PATIENCE = 30.0

# Attempts to load a model that another router changes at the same time, and attempts if workers are
# lost meanwhile. A single loss proves nothing: a worker may have been restarted for any reason.
ATTEMPTS, ATTEMPTS_AFTER_LOSS = 3, 2

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Load:
    """A model that is being loaded: the bytes of its files, and what loads it."""

    need: int
    task: asyncio.Task[None]


class OnDemand:
    """Loads and unloads models of a repository. Only the event loop may use it."""

    def __init__(self, fleet: Fleet, repository: Repository, limits: OnDemandLimits) -> None:
        """Starts without models.

        Args:
            fleet: The workers.
            repository: Loads and unloads the models.
            limits: The limits.
        """
        self._fleet, self._catalog = fleet, fleet.catalog
        self._revisions = fleet.catalog.revisions
        self._repository = repository
        self._limits = limits
        self._loading: dict[str, _Load] = {}
        # Callers that wait for a model, which then must not make room for others.
        self._waiting: Counter[str] = Counter()
        self._failed: dict[str, tuple[ServiceError, float]] = {}
        # The size of the files of each model that another router is loading, in bytes.
        self._sizes: dict[Deployment, int] = {}
        # Models that wait for memory, and since when; the first of them first.
        self._looking: dict[str, float] = {}
        # One of the callers that wait for the same model looks for room.
        self._turns = WeakValueDictionary[str, asyncio.Lock]()

    async def ensure(self, name: str, deadline: float | None) -> None:
        """Loads a model that is not served, if the repository has it; other names are left alone.

        All callers that name it wait for the same load. It continues even if all of them leave.

        Args:
            name: The requested name; no alias.
            deadline: Deadline on the monotonic clock, in seconds.

        Raises:
            ModelNotLoadedError: It cannot be loaded, or could not a moment ago.
            StillLoadingError: It is not loaded in time.
        """
        if self._is_served(name) or not await self._repository.may_load(name):
            return
        self._waiting[name] += 1
        try:
            async with asyncio.timeout_at(worker_by(deadline)):
                await self._load_once(name)
        except TimeoutError:
            raise StillLoadingError(name, self._waits_for(name)) from None
        finally:
            self._waiting[name] -= 1
            if not self._waiting[name]:
                del self._waiting[name]
                self._looking.pop(name, None)

    async def loadable(self) -> list[str]:
        """The models that are not served and that a request may load, by name."""
        return await self._repository.loadable()

    @in_background
    async def unloading(self) -> None:
        """Unloads idle models inside the context, if there is a limit."""
        limit = self._limits.idle_seconds
        if limit is None:
            return
        while not self._fleet.changes_ended:
            await asyncio.sleep(min(INTERVAL, limit))
            # The service is stopping: nothing is unloaded any more.
            with survive_errors("unloading idle models"), contextlib.suppress(StoppingError):
                for name in self._names():
                    if (idle := self._idle_seconds(name)) >= limit:
                        await self._unload(name, idle)

    async def _load_once(self, name: str) -> None:
        """Waits for the load of a model, which it starts if nobody has.

        Raises:
            ServiceError: It cannot be loaded.
        """
        if name not in self._loading:
            async with self._turns.setdefault(name, asyncio.Lock()):
                if self._is_served(name):
                    return
                if name not in self._loading:
                    self._check_failed(name)
                    await self._begin(name)
        if name in self._loading:
            await asyncio.shield(self._loading[name].task)

    async def _begin(self, name: str) -> None:
        """Begins to load a model once there is room for it, unless another router loads it first.

        Raises:
            ModelNotLoadedError: It can never fit.
            StoppingError: The service stops.
        """
        need, limit = await self._repository.size(name), self._limits.max_bytes
        if need > limit:
            raise ModelNotLoadedError(
                name,
                f"its files take {format_size(need)}, and --on-demand-memory is "
                f"{format_size(limit)}",
            )
        self._looking.setdefault(name, time.monotonic())
        async for _ in self._fleet.changes(interval=INTERVAL):
            await self._measure_other_loads()
            if self._is_served(name):
                return
            if self._before(name):
                continue
            used = self._used()
            # Another router may have begun to load it.
            del used[name]
            # Nothing is awaited from here to the load, so that no other one takes the same room.
            if need + sum(used.values()) <= limit:
                del self._looking[name]
                task = asyncio.create_task(self._load(name))
                self._loading[name] = _Load(need=need, task=task)
                task.add_done_callback(lambda task: self._ended(name, task))
                return
            await self._make_room(name, need, used)
        raise StoppingError

    async def _make_room(self, name: str, need: int, used: Counter[str]) -> None:
        """Unloads idle models, the longest idle first, until a model fits.

        Args:
            name: The model.
            need: Bytes of its files.
            used: The bytes of the others.
        """
        # What is no longer served is freed as soon as its last request has ended.
        loading = {*self._loading, *(each.name for each in self._other_loads())}
        kept = used.keys() & {*self._revisions.names, *loading}
        excess = need + sum(used[each] for each in kept) - self._limits.max_bytes
        seconds = {each: self._idle_seconds(each) for each in self._names()}
        idle = [each for each in seconds if seconds[each] >= MIN_IDLE]
        # While others may pass it, it gains nothing from room that is too small.
        if excess > sum(used[each] for each in idle) and not self._is_first(name):
            return
        for each in sorted(idle, key=lambda each: -seconds[each]):
            if excess <= 0:
                return
            await self._unload(each, seconds[each])
            excess -= used[each]

    def _is_first(self, name: str) -> bool:
        """Whether a model has waited for memory for so long that none is loaded before it."""
        first, since = next(iter(self._looking.items()))
        return name == first and time.monotonic() >= since + PATIENCE

    def _before(self, name: str) -> str:
        """The model that is loaded first although another one may fit; empty if there is none."""
        first = next(iter(self._looking), name)
        return first if first != name and self._is_first(first) else ""

    async def _load(self, name: str) -> None:
        """Loads a model, or waits while another router does.

        Raises:
            ServiceError: It cannot be loaded.
        """
        losses = 0
        for _ in range(ATTEMPTS):
            await self._let_another_router_load(name)
            if self._is_served(name):
                return
            try:
                await self._repository.load_on_demand(name)
                return
            except OtherChangeError as error:
                log.info("another router loads the model", model=name, reason=str(error))
            except LostWhileLoadingError:
                losses += 1
                if losses == ATTEMPTS_AFTER_LOSS:
                    raise
        raise OtherChangeError(name)

    async def _let_another_router_load(self, name: str) -> None:
        """Waits while workers load a model as another router told them, and for its orders."""
        give_up_at = time.monotonic() + TAKE_OVER
        async for _ in self._fleet.changes():
            told = self._revisions.told(name)
            if self._is_served(name) or told is None or not told.revisions:
                return
            if RevisionState.LOADING in self._states(told):
                give_up_at = time.monotonic() + TAKE_OVER
            elif time.monotonic() >= give_up_at:
                return

    def _states(self, deployment: Deployment) -> set[RevisionState]:
        return {
            report.state
            for revision in deployment.revisions
            for report in self._catalog.reports(revision.model)
        }

    def _ended(self, name: str, task: asyncio.Task[None]) -> None:
        del self._loading[name]
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, ServiceError):
            pause = LOST_RETRY if isinstance(error, LostWhileLoadingError) else RETRY
            self._failed[name] = error, time.monotonic() + pause
        elif error is not None:
            log.error("loading on demand failed", model=name, exc_info=error)

    def _check_failed(self, name: str) -> None:
        error, until = self._failed.get(name, (None, 0.0))
        if error is not None and time.monotonic() < until:
            # Without the calls that it was raised through before.
            raise error.with_traceback(None)
        self._failed.pop(name, None)

    async def _unload(self, name: str, idle: float) -> None:
        # Otherwise a request, another router or an operator was quicker.
        with contextlib.suppress(OtherChangeError, UnknownModelError):
            if await self._repository.unload_idle(name, idle):
                log.info("idle model unloaded", model=name, idle_seconds=round(idle, 1))

    def _is_served(self, name: str) -> bool:
        return not name or name in self._revisions.names or self._revisions.is_known(name)

    def _names(self) -> list[str]:
        """The models loaded on demand that may be unloaded.

        Those that share the requests of an alias stay, because it would send no more to them.
        """
        shared = {
            target.model
            for targets in self._revisions.aliases.values()
            if len(targets) > 1
            for target in targets
        }
        return [
            name
            for name in self._revisions.names
            if name not in shared
            and name not in self._waiting
            and self._revisions.deployment(name).on_demand
        ]

    def _idle_seconds(self, name: str) -> float:
        """Seconds since a model was last used; 0 while requests use it."""
        return min(
            (
                self._catalog.idle_seconds(revision.model)
                for revision in self._revisions.deployment(name).revisions
            ),
            # Somebody has unloaded it meanwhile.
            default=0.0,
        )

    def _used(self) -> Counter[str]:
        """The bytes of each model that was loaded on demand, on the worker that uses most for it.

        They are counted until workers have freed them. A model that is being loaded, here or by
        another router, counts with the size of its files.
        """
        used: Counter[str] = Counter()
        for snapshot in self._catalog.snapshots():
            here: Counter[str] = Counter()
            for model in snapshot.models:
                name = public_name(model.name)
                if name != model.name and self._revisions.deployment(name).on_demand:
                    here[name] += model.weight_bytes
            used |= here
        for other in self._other_loads():
            used |= Counter({other.name: self._sizes.get(other, 0)})
        return used | Counter({name: load.need for name, load in self._loading.items()})

    def _other_loads(self) -> set[Deployment]:
        """What other routers have begun to load on demand."""
        reports = [each for snapshot in self._catalog.snapshots() for each in snapshot.revisions]
        reported = {each.model for each in reports}
        loading = {
            public_name(each.model) for each in reports if each.state is RevisionState.LOADING
        }
        return {
            told
            for told in self._revisions.all_told()
            if told.on_demand
            and told.name not in self._loading
            # Workers report nothing before they have got the order.
            and (
                told.name in loading
                or (told.revisions and reported.isdisjoint(each.model for each in told.revisions))
            )
        }

    async def _measure_other_loads(self) -> None:
        """Looks up the file sizes of models that other routers are loading.

        Loads may begin meanwhile, so it repeats until it knows the size of every one.
        """
        loads = self._other_loads()
        self._sizes = {each: size for each, size in self._sizes.items() if each in loads}
        while unknown := self._other_loads() - self._sizes.keys():
            load = unknown.pop()
            size = 0
            # Without the files, its weights count once a worker has read them.
            with contextlib.suppress(ServiceError):
                size = await self._repository.size(load.name)
            self._sizes[load] = size

    def _waits_for(self, name: str) -> str:
        """What a load waits for, for people."""
        if name in self._loading:
            return self._repository.progress(name) or "no worker has begun yet"
        if first := self._before(name):
            return f"it waits for memory, and {first} has waited longer"
        others = ", ".join(sorted(self._used().keys() - {name}))
        return f"it waits for memory, used by {others}" if others else "its load has not begun yet"
