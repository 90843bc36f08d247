"""Loading and unloading models while the service runs."""

import asyncio
import dataclasses
from collections import defaultdict
from collections.abc import MutableMapping, Sequence
from pathlib import Path

import structlog

from shaperouter_service.checkpoints.digest import model_digest
from shaperouter_service.checkpoints.model_locations import check_name
from shaperouter_service.checkpoints.repository import locate_below, locations_in
from shaperouter_service.errors import (
    ExhaustedError,
    FixedModelsError,
    InvalidRequestError,
    ModelNotLoadedError,
    OtherChangeError,
    ServiceError,
    StartupError,
    StoppingError,
    UnknownModelError,
)
from shaperouter_service.fleet import Fleet
from shaperouter_service.routing.deployments import Deployment, Revision, RevisionState
from shaperouter_service.routing.served_model import ServedModel
from shaperouter_service.routing.snapshots import WorkerId
from shaperouter_service.serving.call import Call
from shaperouter_service.serving.models import Models
from shaperouter_service.telemetry.fleet import FleetMetrics, ModelChange
from shaperouter_service.telemetry.requests import RequestMetrics
from shaperouter_service.text import Tokenizer, load_tokenizer

log = structlog.get_logger(__name__)


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
        self._changing: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    @property
    def exists(self) -> bool:
        """Whether there is a repository, so that models may come and go."""
        return self._directory is not None

    async def load(self, name: str, location: str, call: Call) -> ServedModel:
        """Loads a model, or a new revision of one, and sends further requests to it.

        If that fails, or if the caller leaves, the old revision keeps serving.

        Args:
            name: The name that requests use.
            location: Path of the model below the repository; empty for the name.
            call: The call.

        Raises:
            FixedModelsError: This router has no model repository.
            InvalidRequestError: Name or location cannot be used.
            ModelNotLoadedError: A worker cannot load it.
            OtherChangeError: Another call has changed the model meanwhile.
            StoppingError: The service stops.
        """
        if self._directory is None:
            raise FixedModelsError
        try:
            check_name(name)
        except ValueError as error:
            raise InvalidRequestError.of("name", str(error)) from error
        async with self._changing[name]:
            revision = await self._find(self._directory, name, location or name)
            before = self._revisions.deployment(name)
            if [self._digest(each) for each in before.serving] != [revision.digest]:
                await self._replace(name, before, revision, call)
            return self._models.get(name)

    async def unload(self, name: str) -> None:
        """Stops serving a model. Workers free its memory when its running requests have ended.

        Raises:
            FixedModelsError: This router has no model repository.
            UnknownModelError: There is no such model.
            OtherChangeError: Another call has changed the model meanwhile.
            StoppingError: The service stops.
        """
        if self._directory is None:
            raise FixedModelsError
        self._check_served(name)
        async with self._changing[name]:
            self._check_served(name)
            await self._followed(self._next(name, []))
            self._changes.labels(name, ModelChange.UNLOADED).inc()
            log.info("model unloaded", model=name)

    def unloaded(self) -> list[str]:
        """The models in the repository that are not served, by their locations."""
        if self._directory is None:
            return []
        return [each for each in locations_in(self._directory) if each not in self._revisions.names]

    async def prepare(self, deployment: Deployment) -> None:
        """Loads the tokenizers of a deployment's revisions.

        Raises:
            StartupError: A revision is not in this router's repository, or its tokenizer is
                unusable.
        """
        for revision in deployment.revisions:
            if revision.model not in self._tokenizers:
                if self._directory is None:
                    raise StartupError("this router was not started with --model-repository")
                directory = await asyncio.to_thread(
                    locate_below, self._directory, revision.location
                )
                tokenizer = await asyncio.to_thread(load_tokenizer, directory)
                self._tokenizers[revision.model] = tokenizer
        if deployment.revisions:
            self._metrics.begin(deployment.name)
        self._forget_tokenizers(deployment)

    def _forget_tokenizers(self, deployment: Deployment) -> None:
        """Forgets the tokenizers of revisions that no request can use, if there are any."""
        used = {each.model for each in (*deployment.revisions, *self._revisions.revisions())}
        for model in [each for each in self._tokenizers if each not in used]:
            del self._tokenizers[model]

    def _check_served(self, name: str) -> None:
        if name not in self._revisions.names:
            raise UnknownModelError(name, list(self._revisions.names))

    async def _find(self, directory: Path, name: str, location: str) -> Revision:
        """The revision at a location, whose files are read for their digest."""
        try:
            path = await asyncio.to_thread(locate_below, directory, location)
            digest = await asyncio.to_thread(model_digest, path)
        except StartupError as error:
            exhausted = ExhaustedError.of(error.__cause__)
            raise exhausted or InvalidRequestError.of("location", str(error)) from error
        return Revision.of(name, digest=digest, location=location, share=1.0)

    async def _replace(self, name: str, before: Deployment, revision: Revision, call: Call) -> None:
        """Loads a revision beside those that serve, and then sends all requests to it."""
        kept = [each for each in before.revisions if each.model != revision.model]
        beside = self._next(name, [*kept, dataclasses.replace(revision, share=0.0)])
        log.info("loading model", model=name, revision=revision.model, location=revision.location)
        try:
            async with asyncio.timeout_at(call.deadline):
                await self._followed(beside)
                await self._loaded(beside, revision)
        except (TimeoutError, asyncio.CancelledError, ServiceError) as error:
            self._changes.labels(name, ModelChange.FAILED).inc()
            log.warning("model not loaded", model=name, revision=revision.model, reason=str(error))
            # Unless another call has changed it, or the service stops and forgets it anyway.
            if self._revisions.told(name) == beside:
                self._fleet.tell(self._next(name, before.revisions))
            if not isinstance(error, TimeoutError):
                raise
            raise ModelNotLoadedError(name, "the deadline of the call passed") from None
        await self._followed(self._next(name, [revision]))
        self._changes.labels(name, ModelChange.LOADED).inc()
        log.info("model loaded", model=name, revision=revision.model)

    def _next(self, name: str, revisions: Sequence[Revision]) -> Deployment:
        """The deployment that supersedes all known ones of a name."""
        followed, told = self._revisions.deployment(name), self._revisions.told(name)
        newest = followed if told is None else told
        return Deployment(
            name=name,
            version=newest.version + 1,
            revisions=revisions,
            # A model that some workers were started with stays on these workers.
            everywhere=newest.everywhere or (newest.version == 0 and not newest.revisions),
        )

    async def _followed(self, deployment: Deployment) -> None:
        """Waits until this router follows a deployment.

        Raises:
            ModelNotLoadedError: This router cannot follow it.
            OtherChangeError: It was superseded.
            StoppingError: The service stops.
        """
        try:
            await self.prepare(deployment)
        except StartupError as error:
            raise ModelNotLoadedError(deployment.name, str(error)) from error
        self._fleet.tell(deployment)
        async for _ in self._fleet.changes():
            self._check_newest(deployment)
            if self._revisions.deployment(deployment.name) == deployment:
                return
        raise StoppingError

    async def _loaded(self, deployment: Deployment, revision: Revision) -> None:
        """Waits until every worker that should have a revision can serve it.

        Raises:
            ModelNotLoadedError: A worker cannot load it, or died while it did.
            OtherChangeError: The deployment was superseded.
            StoppingError: The service stops.
        """
        loading: set[WorkerId] = set()
        async for _ in self._fleet.changes():
            self._check_newest(deployment)
            snapshots = self._catalog.snapshots()
            present = {snapshot.worker_id for snapshot in snapshots}
            for lost in loading - present:
                # The revision may have needed too much memory, and would need as much on the next
                # worker.
                why = f"{lost.name} was lost while it loaded it"
                raise ModelNotLoadedError(deployment.name, why)
            waiting, ready = False, False
            for snapshot in snapshots:
                report = self._catalog.report(snapshot.worker_id, revision.model)
                if deployment not in snapshot.deployments:
                    waiting = True
                elif report is None:
                    continue
                elif report.state is RevisionState.FAILED:
                    why = f"{snapshot.worker}: {report.error}"
                    raise ModelNotLoadedError(deployment.name, why)
                elif report.state is RevisionState.LOADING:
                    loading.add(snapshot.worker_id)
                    waiting = True
                else:
                    loading.discard(snapshot.worker_id)
                    ready = True
            if ready and not waiting:
                return
        raise StoppingError

    def _check_newest(self, deployment: Deployment) -> None:
        if self._revisions.told(deployment.name) != deployment:
            raise OtherChangeError(deployment.name)

    def _digest(self, revision: Revision) -> str:
        """The digest of a revision's files; only workers know it for models of their start."""
        if revision.digest:
            return revision.digest
        model = self._catalog.model(revision.model)
        return "" if model is None else model.revision
