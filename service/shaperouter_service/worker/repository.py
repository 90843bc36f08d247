"""Carries out deployments on a worker: loads their revisions, and frees those not used any more.

The worker stores the deployments that routers send and reports them to all routers, so that a
router that starts later learns them. Each router also says which deployments it follows and which
older revisions its requests still use. A revision is freed once no router can send requests to it.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import structlog

from shaperouter_service.checkpoints.repository import locate_below
from shaperouter_service.errors import ServiceError, StartupError
from shaperouter_service.routing.deployments import (
    Deployment,
    Orders,
    Revision,
    RevisionReport,
    RevisionState,
    newest,
    public_name,
)
from shaperouter_service.worker.warm_up import WarmUp

# Seconds before a revision that could not be loaded is tried again: doubled after each failure, up
# to a limit.
FIRST_RETRY, LAST_RETRY = 10.0, 600.0

# Seconds after its start in which a worker expects a router to find it; routers look up names every
# 5 s. Seconds after a router begins to watch it in which it expects that router's orders.
FOUND_WITHIN, ORDERED_WITHIN = 10.0, 3.0

log = structlog.get_logger(__name__)


@dataclass(kw_only=True)
class _Load:
    """The loading of a revision.

    Attributes:
        state: Its state.
        error: Why it could not be loaded.
        failures: Number of failed attempts.
        retry_at: When to try again, on the monotonic clock.
        warm_up: The graphs that it needs before it can serve; None until its weights are read.
        began: When its loading began, on the monotonic clock.
    """

    state: RevisionState = RevisionState.LOADING
    error: str = ""
    failures: int = 0
    retry_at: float = 0.0
    warm_up: WarmUp | None = None
    began: float = field(default_factory=time.monotonic)

    @property
    def is_due(self) -> bool:
        """Whether it has failed, and should be tried again."""
        return self.state is RevisionState.FAILED and time.monotonic() >= self.retry_at

    @property
    def progress(self) -> str:
        """What is being done, for people; empty once it is ready, or has failed."""
        if self.state is not RevisionState.LOADING:
            return ""
        return "reads its files" if self.warm_up is None else f"makes its graphs: {self.warm_up}"


class _Engine(Protocol):
    """What a repository needs of the engine; see `Engine` for each method."""

    @property
    def warm(self) -> bool: ...

    def load(self, name: str, directory: Path, digest: str) -> WarmUp: ...

    def unload(self, name: str) -> None: ...

    def is_used(self, name: str) -> bool: ...

    def idle_seconds(self, name: str) -> float: ...


class ModelRepository:
    """Follows deployments on an engine. Only the event loop may use it."""

    def __init__(
        self,
        engine: _Engine,
        directory: Path | None,
        started_with: Mapping[str, Path],
        on_change: Callable[[], None],
    ) -> None:
        """Starts with the models that the worker was started with.

        Args:
            engine: Loads and serves models.
            directory: The model repository; None if no models may be loaded.
            started_with: Files of the models that the worker was started with, by name.
            on_change: Called when the deployments or a report have changed.
        """
        self._engine = engine
        self._on_change = on_change
        self._directory = directory
        self._started_with = started_with
        self._present = set(started_with)
        self._deployments: dict[str, Deployment] = {}
        self._loads: dict[str, _Load] = {}
        # The routers that watch this worker, with their numbers of calls; and the last orders of
        # each.
        self._watching: dict[str, int] = {}
        self._orders: dict[str, Orders] = {}
        self._started = time.monotonic()
        self._first_watched: float | None = None

    @property
    def deployments(self) -> list[Deployment]:
        """The newest deployments."""
        return list(self._deployments.values())

    def reports(self) -> list[RevisionReport]:
        """The state of each revision that this worker should load, or has loaded."""
        # Loads follow each other, so the turn of a revision may come minutes after the order.
        waiting = [
            RevisionReport(model=model, state=RevisionState.LOADING, progress="waits for its turn")
            for model in self._wanted()
            if model not in self._present and model not in self._loads
        ]
        return waiting + [
            RevisionReport(
                model=model,
                state=load.state,
                error=load.error,
                progress=load.progress,
                idle_seconds=(
                    self._engine.idle_seconds(model) if load.state is RevisionState.READY else 0.0
                ),
            )
            for model, load in self._loads.items()
        ]

    @contextlib.contextmanager
    def watched_by(self, router: str) -> Iterator[None]:
        """Keeps the revisions loaded, inside the context, that a router's requests may use."""
        if self._first_watched is None:
            self._first_watched = time.monotonic()
        self._watching[router] = self._watching.get(router, 0) + 1
        try:
            yield
        finally:
            self._watching[router] -= 1
            if not self._watching[router]:
                del self._watching[router]
                self._orders.pop(router, None)

    @property
    def settled(self) -> bool:
        """Whether this worker has the models that the other workers have.

        Routers have had time to find it and to order what was loaded while the service ran, and all
        of that is ready.
        """
        if self._first_watched is None:
            expected = self._started + FOUND_WITHIN
        else:
            expected = self._first_watched + ORDERED_WITHIN
        return time.monotonic() >= expected and all(
            model in self._present
            and (model not in self._loads or self._loads[model].state is RevisionState.READY)
            for model in self._wanted()
        )

    def order(self, orders: Orders) -> None:
        """Takes the orders of a router; `follow` carries them out."""
        # Orders that arrive after their router has left would never be forgotten.
        if orders.router in self._watching:
            self._orders[orders.router] = orders
        before, self._deployments = self._deployments, newest(self._deployments, orders.deployments)
        if not self._engine.warm:
            # What this worker learns while it starts was loaded before its start.
            for name in self._deployments.keys() - before.keys():
                self._warn_of_other_files(self._deployments[name])
        self._on_change()

    def _warn_of_other_files(self, deployment: Deployment) -> None:
        """Warns if the files that the worker was started with will not be served.

        An operator who changes `--model` after a model was loaded at run time expects them to be.
        """
        started = self._started_with.get(deployment.name)
        served = [revision.location for revision in deployment.serving]
        if started is None or self._directory is None:
            return
        if started.resolve() not in [(self._directory / each).resolve() for each in served]:
            log.warning(
                "the files of --model are not served",
                model=deployment.name,
                files=str(started),
                served=served,
                reason="others were loaded, or the model was unloaded, while the service ran",
                fix=f"shaperouter load {deployment.name}=DIRECTORY",
            )

    async def follow(self) -> None:
        """Loads and frees models until the worker has those of the deployments."""
        # A load or an unload may take minutes, in which other orders come: each step asks again.
        for model, load in list(self._loads.items()):
            await self._judge(model, load)
            if model not in self._wanted() and load.state is RevisionState.FAILED:
                del self._loads[model]
                self._on_change()
        while revision := self._next_due():
            await self._load(revision)
        while free := next(filter(self._is_free, self._present), None):
            await self._unload(free)
            self._loads.pop(free, None)
            log.info("revision freed", model=free)
            self._on_change()

    def _wanted(self) -> dict[str, Revision]:
        """The revisions that this worker should have, by the workers' names of them."""
        deployed = [
            revision
            for deployment in self._deployments.values()
            if deployment.everywhere or deployment.name in self._started_with
            for revision in deployment.revisions
        ]
        held = [
            revision
            for orders in self._orders.values()
            for revision in orders.held
            # Another worker may have it, and this one not.
            if revision.model in self._present or public_name(revision.model) in self._names()
        ]
        return {revision.model: revision for revision in (*deployed, *held)}

    def _names(self) -> set[str]:
        """The names that this worker serves, or has served."""
        everywhere = {each.name for each in self._deployments.values() if each.everywhere}
        return everywhere | self._started_with.keys()

    def _next_due(self) -> Revision | None:
        """A revision that should be loaded now; None if there is none."""
        for revision in self._wanted().values():
            load = self._loads.get(revision.model)
            if revision.model not in self._present and (load is None or load.is_due):
                return revision
        return None

    def _is_free(self, model: str) -> bool:
        """Whether no request can use a model any more."""
        deployment = self._deployments.get(public_name(model))
        if deployment is None or model in self._wanted():
            return False
        for router in self._watching:
            told = self._orders.get(router)
            follows = {} if told is None else {each.name: each for each in told.deployments}
            known = follows.get(deployment.name)
            if known is None or known.version < deployment.version:
                return False
        return not self._engine.is_used(model)

    async def _judge(self, model: str, load: _Load) -> None:
        """Notes that a revision can serve, or that a first graph of it failed."""
        if load.state is not RevisionState.LOADING or load.warm_up is None:
            return
        if failed := load.warm_up.failed_covers:
            graph = failed[0]
            error = f"graph {graph.signature} could not be compiled: {graph.error}"
            self._failed(model, load, error)
            await self._unload(model)
        elif load.warm_up.is_done:
            load.state = RevisionState.READY
            self._on_change()
            seconds = round(time.monotonic() - load.began, 3)
            log.info("revision ready", model=model, seconds=seconds)

    async def _load(self, revision: Revision) -> None:
        model = revision.model
        load = self._loads.setdefault(model, _Load())
        load.state, load.error, load.began = RevisionState.LOADING, "", time.monotonic()
        self._on_change()
        log.info("loading revision", model=model, location=revision.location)
        try:
            if self._directory is None or not revision.location:
                raise StartupError("this worker was not started with --model-repository and it")
            directory = await asyncio.to_thread(locate_below, self._directory, revision.location)
            load.warm_up = await asyncio.to_thread(
                self._engine.load, model, directory, revision.digest
            )
        # TensorFlow may raise anything for a bad checkpoint; the other models must keep serving.
        except Exception as error:
            if not isinstance(error, StartupError | ServiceError):
                log.exception("loading a revision failed", model=model)
            self._failed(model, load, str(error) or type(error).__name__)
            return
        self._present.add(model)

    def _failed(self, model: str, load: _Load, error: str) -> None:
        pause = min(LAST_RETRY, FIRST_RETRY * 2**load.failures)
        load.state, load.error = RevisionState.FAILED, error
        load.failures += 1
        load.retry_at = time.monotonic() + pause
        load.warm_up = None
        self._on_change()
        log.warning("revision failed", model=model, error=error, retry_seconds=pause)

    async def _unload(self, model: str) -> None:
        await asyncio.to_thread(self._engine.unload, model)
        self._present.discard(model)
