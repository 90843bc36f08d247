"""Loading and unloading models while the service runs."""

import asyncio
import contextlib
import dataclasses
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, MutableMapping, Sequence
from pathlib import Path
from typing import ParamSpec, TypeVar
from weakref import WeakValueDictionary

import structlog

from shaperouter_service.checkpoints.digest import model_digest
from shaperouter_service.checkpoints.model_locations import check_name
from shaperouter_service.checkpoints.repository import bytes_of, locate_below, locations_in
from shaperouter_service.errors import (
    ExhaustedError,
    FixedModelsError,
    InvalidRequestError,
    ModelNotLoadedError,
    ServiceError,
    StartupError,
    UnknownModelError,
)
from shaperouter_service.fleet import Fleet
from shaperouter_service.routing.aliases import check_share, check_targets
from shaperouter_service.routing.deployments import (
    Deployment,
    Revision,
    Target,
    public_name,
)
from shaperouter_service.routing.served_model import ServedModel
from shaperouter_service.serving.call import Call
from shaperouter_service.serving.models import Models
from shaperouter_service.serving.rollout import Rollout
from shaperouter_service.telemetry.fleet import FleetMetrics, ModelChange
from shaperouter_service.telemetry.requests import RequestMetrics
from shaperouter_service.text import Tokenizer, load_tokenizer

P = ParamSpec("P")
T = TypeVar("T")

log = structlog.get_logger(__name__)


def shared(before: Deployment, revision: Revision, share: float) -> list[Revision]:
    """The revisions that get requests after a change, with their shares.

    Args:
        before: The deployment that is followed.
        revision: The revision that is to get a share.
        share: The share.

    Raises:
        InvalidRequestError: No other revision could get the rest.
    """
    if share == 1:
        return [dataclasses.replace(revision, share=1.0)]
    stable = next(iter(before.serving), None)
    if stable is None:
        description = f"must be 1, got {share:g}: no revision of {before.name} serves the rest"
        raise InvalidRequestError.of("share", description)
    if stable.model == revision.model:
        description = (
            f"must be 1, got {share:g}: this revision of {before.name} is no canary but the one "
            "that serves the rest; load the canary with another share"
        )
        raise InvalidRequestError.of("share", description)
    return [
        dataclasses.replace(stable, share=1 - share),
        dataclasses.replace(revision, share=share),
    ]


def _check(field: str, check: Callable[[T], None], value: T) -> None:
    """Checks a field of a request.

    Raises:
        InvalidRequestError: `check` raises a ValueError.
    """
    try:
        check(value)
    except ValueError as error:
        raise InvalidRequestError.of(field, str(error)) from error


async def _read_location(read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Reads the files of a location in a thread.

    Raises:
        ExhaustedError: This process has no memory or files left to read them.
        InvalidRequestError: They are no model.
    """
    try:
        return await asyncio.to_thread(read, *args, **kwargs)
    except StartupError as error:
        exhausted = ExhaustedError.of(error.__cause__)
        raise exhausted or InvalidRequestError.of("location", str(error)) from error


class Repository:
    """Loads and unloads models on a fleet. Only the event loop may use it."""

    def __init__(
        self,
        fleet: Fleet,
        models: Models,
        tokenizers: MutableMapping[str, Tokenizer | None],
        *,
        metrics: RequestMetrics,
        fleet_metrics: FleetMetrics,
        directory: Path | None,
    ) -> None:
        """Takes the parts that it changes.

        Args:
            fleet: The workers.
            models: Describes loaded models.
            tokenizers: The tokenizers of revisions, by the workers' names of these.
            metrics: Metrics of requests, which get the names of further models.
            fleet_metrics: Counts changes.
            directory: The model repository; None if models cannot be loaded and unloaded.
        """
        self._fleet = fleet
        self._catalog, self._revisions = fleet.catalog, fleet.catalog.revisions
        self._models = models
        self._tokenizers = tokenizers
        self._metrics = metrics
        self._changes = fleet_metrics.model_changes
        self._directory = directory
        self._rollout = Rollout(fleet, self.prepare)
        # The lock of each name, while changes hold it or wait for it.
        self._changing = WeakValueDictionary[str, asyncio.Lock]()
        self._revisions.on_release(self._forget_unused_soon)

    @property
    def exists(self) -> bool:
        """Whether there is a repository, so that models may come and go."""
        return self._directory is not None

    async def load(
        self, name: str, location: str, call: Call, *, share: float = 1.0
    ) -> ServedModel:
        """Loads a model, or a new revision of one, and sends further requests to it.

        If that fails, or if the caller leaves, the old revision keeps serving.

        Args:
            name: The name that requests use.
            location: Path of the model below the repository; empty for the name.
            call: The call.
            share: Its share of the requests; the revision that serves now keeps the rest.

        Raises:
            FixedModelsError: This router has no model repository.
            InvalidRequestError: Name, location or share cannot be used.
            ModelNotLoadedError: A worker cannot load it.
            OtherChangeError: Another call has changed the model meanwhile.
            StoppingError: The service stops.
        """
        if self._directory is None:
            raise FixedModelsError
        _check("name", check_name, name)
        _check("share", check_share, share)
        async with self._change(name):
            if name in self._revisions.aliases:
                description = f"must not be an alias, got {name}; unload the alias first"
                raise InvalidRequestError.of("name", description)
            await self._load(self._directory, name, location or name, call.deadline, share=share)
            return self._models.get(name)

    async def may_load(self, name: str) -> bool:
        """Whether a request may load a model: no operator has unloaded it, and it is there."""
        if self._directory is None or not self._newest(name).on_demand:
            return False
        return name in await asyncio.to_thread(locations_in, self._directory)

    async def loadable(self) -> list[str]:
        """The models that are not served and that a request may load; see `may_load`."""
        return [name for name in await self.unloaded() if self._newest(name).on_demand]

    async def size(self, name: str) -> int:
        """Bytes of the files of a model in the repository.

        Raises:
            InvalidRequestError: It is not there.
        """
        if self._directory is None:
            raise FixedModelsError
        path = await _read_location(locate_below, self._directory, name)
        return await asyncio.to_thread(bytes_of, path)

    async def load_on_demand(self, name: str) -> None:
        """Loads a model of the repository, unless it is served; see `load`."""
        if self._directory is None:
            raise FixedModelsError
        async with self._change(name):
            # An operator may have unloaded it meanwhile, and then it stays unloaded.
            if name not in self._revisions.names and self._newest(name).on_demand:
                await self._load(self._directory, name, name, None, on_demand=True)

    async def unload_idle(self, name: str, seconds: float) -> bool:
        """Unloads a model that was loaded on demand, until the next request for it.

        Args:
            name: The model.
            seconds: Seconds for which no request has used it. One that did meanwhile keeps it.

        Returns:
            Whether it was unloaded.

        Raises:
            UnknownModelError: There is no such model.
            OtherChangeError: Another call has changed the model meanwhile.
            StoppingError: The service stops.
        """
        async with self._change(name):
            self._check_served(name)
            deployment = self._revisions.deployment(name)
            # An operator may have loaded it meanwhile, and then it stays.
            if not deployment.on_demand or any(
                self._catalog.idle_seconds(each.model) < seconds for each in deployment.revisions
            ):
                return False
            await self._rollout.followed(self._next(name, on_demand=True))
            self._changes.labels(name, ModelChange.IDLE).inc()
            return True

    async def undo_load(self, begun: Deployment) -> None:
        """Takes back a load that another router has begun, unless its name changes or has changed.

        What serves stays. A name that nothing serves is again one that a request may load.

        Raises:
            OtherChangeError: Another call has changed the model meanwhile.
            StoppingError: The service stops.
        """
        lock = self._changing.get(begun.name)
        if lock is not None and lock.locked():
            return
        async with self._change(begun.name):
            if self._newest(begun.name) == begun:
                on_demand = begun.on_demand or not begun.serving
                undone = self._next(begun.name, begun.serving, on_demand=on_demand)
                await self._rollout.followed(undone)
                log.warning("abandoned load taken back", model=begun.name)

    async def set_alias(self, name: str, targets: Sequence[Target]) -> None:
        """Sets where the requests to an alias go.

        Args:
            name: The alias.
            targets: Names of models, with their shares of the requests.

        Raises:
            InvalidRequestError: The name or the targets cannot be used.
            UnknownModelError: A target is not served.
            OtherChangeError: Another call has changed the alias meanwhile.
            StoppingError: The service stops.
        """
        _check("name", check_name, name)
        _check("targets", check_targets, targets)
        async with self._change(name):
            if name in self._revisions.names:
                raise InvalidRequestError.of("name", f"must not be the name of a model, got {name}")
            for target in targets:
                if target.model in self._revisions.aliases:
                    description = f"must be models, got the alias {target.model}"
                    raise InvalidRequestError.of("targets", description)
                self._check_served(target.model)
            await self._rollout.followed(self._next(name, targets=targets))
            log.info("alias set", alias=name, targets={each.model: each.share for each in targets})

    async def unload(self, name: str) -> None:
        """Stops serving a model, or removes an alias.

        Workers free the memory of a model when its running requests have ended.

        Raises:
            FixedModelsError: This router has no model repository.
            InvalidRequestError: This cannot be a name.
            UnknownModelError: There is no such model.
            OtherChangeError: Another call has changed the model meanwhile.
            StoppingError: The service stops.
        """
        _check("name", check_name, name)
        async with self._change(name):
            if name in self._revisions.aliases:
                await self._rollout.followed(self._next(name))
                log.info("alias removed", alias=name)
                return
            if self._directory is None:
                raise FixedModelsError
            # A router that is gone may have begun to load a revision that does not serve yet.
            if not self._revisions.deployment(name).revisions:
                raise UnknownModelError(name, list(self._revisions.names))
            await self._rollout.followed(self._next(name))
            self._changes.labels(name, ModelChange.UNLOADED).inc()
            log.info("model unloaded", model=name)

    @contextlib.asynccontextmanager
    async def _change(self, name: str) -> AsyncIterator[None]:
        """One change of a name at a time, once this router knows what has been loaded."""
        async with self._changing.setdefault(name, asyncio.Lock()):
            await self._fleet.meet_workers()
            await self._rollout.caught_up(name)
            yield

    async def unloaded(self) -> list[str]:
        """The models in the repository that are not served, by their locations."""
        if self._directory is None:
            return []
        locations = await asyncio.to_thread(locations_in, self._directory)
        return [each for each in locations if each not in self._revisions.names]

    def progress(self, name: str) -> str:
        """What workers are doing to load a model, for people; empty if none loads it."""
        steps = self._catalog.progress(name)
        return "; ".join(f"{worker} {step}" for worker, step in steps.items())

    async def prepare(self, deployment: Deployment) -> None:
        """Loads the tokenizers of a deployment's revisions.

        Raises:
            StartupError: A revision is not in this router's repository, or its tokenizer is
                unusable.
        """
        # Kept here until all are loaded: those that nothing uses yet may be forgotten meanwhile.
        prepared = {each.model: await self._tokenizer(each) for each in deployment.revisions}
        self._tokenizers.update(prepared)
        for revision in deployment.revisions:
            if revision.digest:
                self._metrics.revisions.begin(deployment.name, revision.digest)
        if deployment.revisions:
            self._metrics.begin(deployment.name)

    async def _tokenizer(self, revision: Revision) -> Tokenizer | None:
        """The tokenizer of a revision, which is loaded unless this router has it.

        Raises:
            StartupError: It is not in this router's repository, or unusable.
        """
        if revision.model in self._tokenizers:
            return self._tokenizers[revision.model]
        if self._directory is None:
            raise StartupError("this router was not started with --model-repository")
        directory = await asyncio.to_thread(locate_below, self._directory, revision.location)
        return await asyncio.to_thread(load_tokenizer, directory)

    def _forget_unused_soon(self) -> None:
        """Forgets what no request can use, once the request has been counted that used it last."""
        asyncio.get_running_loop().call_soon(self._forget_unused)

    def _forget_unused(self) -> None:
        """Forgets the tokenizers and series of revisions and names that no request can use."""
        pending = [each for deployed in self._revisions.pending() for each in deployed.revisions]
        used = [*self._revisions.revisions(), *pending]
        models = {each.model for each in used}
        for model in [each for each in self._tokenizers if each not in models]:
            del self._tokenizers[model]
        digests = defaultdict[str, set[str]](set)
        for each in used:
            found = {each.digest} if each.digest else self._catalog.digests(each.model)
            digests[public_name(each.model)] |= found
        self._metrics.revisions.keep(digests)
        self._metrics.keep(digests)

    def _check_served(self, name: str) -> None:
        if name not in self._revisions.names:
            raise UnknownModelError(name, list(self._revisions.names))

    async def _load(
        self,
        directory: Path,
        name: str,
        location: str,
        deadline: float | None,
        *,
        share: float = 1.0,
        on_demand: bool = False,
    ) -> None:
        """Loads a revision and gives it its share of the requests; see `load`."""
        before = self._revisions.deployment(name)
        found = await self._find(directory, name, location)
        loaded = [each for each in before.serving if self._digest(each) == found.digest]
        revision = loaded[0] if loaded else found
        after = shared(before, revision, share)
        if not loaded:
            await self._load_beside(before, revision, deadline, on_demand=on_demand)
        if after != before.serving or on_demand != before.on_demand:
            await self._rollout.followed(self._next(name, after, on_demand=on_demand))
            self._changes.labels(name, ModelChange.LOADED).inc()
            log.info("model loaded", model=name, revision=revision.model, share=share)

    async def _find(self, directory: Path, name: str, location: str) -> Revision:
        """The revision at a location, whose files are read for their digest."""
        path = await _read_location(locate_below, directory, location)
        digest = await _read_location(model_digest, path)
        return Revision.of(name, digest=digest, location=location, share=1.0)

    async def _load_beside(
        self,
        before: Deployment,
        revision: Revision,
        deadline: float | None,
        *,
        on_demand: bool,
    ) -> None:
        """Loads a revision beside those that serve, without sending requests to it."""
        name = before.name
        kept = [each for each in before.revisions if each.model != revision.model]
        added = dataclasses.replace(revision, share=0.0)
        beside = self._next(name, [*kept, added], on_demand=on_demand)
        log.info("loading model", model=name, revision=revision.model, location=revision.location)
        try:
            async with asyncio.timeout_at(deadline):
                await self._rollout.followed(beside)
                await self._rollout.loaded(beside, revision)
        except (TimeoutError, asyncio.CancelledError, ServiceError) as error:
            self._changes.labels(name, ModelChange.FAILED).inc()
            log.warning("model not loaded", model=name, revision=revision.model, reason=str(error))
            # Unless another call has changed it, or the service stops and forgets it anyway.
            if self._revisions.told(name) == beside:
                self._fleet.tell(self._next(name, before.revisions, on_demand=before.on_demand))
            if not isinstance(error, TimeoutError):
                raise
            raise ModelNotLoadedError(name, "the deadline of the call passed") from None

    def _newest(self, name: str) -> Deployment:
        """The newest known deployment of a name, which may not be followed yet."""
        return self._revisions.told(name) or self._revisions.deployment(name)

    def _next(
        self,
        name: str,
        revisions: Sequence[Revision] = (),
        *,
        targets: Sequence[Target] = (),
        on_demand: bool = False,
    ) -> Deployment:
        """The deployment that supersedes all known ones of a name."""
        newest = self._newest(name)
        return Deployment(
            name=name,
            version=newest.version + 1,
            revisions=revisions,
            targets=targets,
            on_demand=on_demand,
            # A model that some workers were started with stays on these workers.
            everywhere=newest.everywhere or (newest.version == 0 and not newest.revisions),
        )

    def _digest(self, revision: Revision) -> str:
        """The digest of a revision's files; only workers know it for models of their start."""
        if revision.digest:
            return revision.digest
        model = self._catalog.model(revision.model)
        return "" if model is None else model.revision
