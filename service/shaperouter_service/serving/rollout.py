"""Waiting until routers and workers have carried out a deployment."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable

from shaperouter_service.errors import (
    LostWhileLoadingError,
    ModelNotLoadedError,
    OtherChangeError,
    StartupError,
    StoppingError,
)
from shaperouter_service.fleet import Fleet
from shaperouter_service.fleet.link import Loss
from shaperouter_service.routing.deployments import Deployment, Revision, RevisionState
from shaperouter_service.routing.snapshots import WorkerId

# Seconds within which a worker that was lost while it loaded may return. Reading a large checkpoint
# on a busy machine can silence it for longer than a connection lasts.
RETURN_SECONDS = 30.0

# Maximum seconds until a router has prepared for what another one has loaded.
CATCH_UP_SECONDS = 10.0

# Seconds between two checks of whether that time has passed.
RETURN_INTERVAL = 1.0


class Rollout:
    """Tells deployments and waits for what follows. Only the event loop may use it."""

    def __init__(self, fleet: Fleet, prepare: Callable[[Deployment], Awaitable[None]]) -> None:
        """Takes the fleet, and what prepares the router for a deployment; see `deploying`."""
        self._fleet = fleet
        self._catalog, self._revisions = fleet.catalog, fleet.catalog.revisions
        self._prepare = prepare

    async def followed(self, deployment: Deployment) -> None:
        """Waits until this router follows a deployment, and all workers know it.

        Every later change of the name then begins with this deployment; see `caught_up`.

        Raises:
            ModelNotLoadedError: This router cannot follow it.
            OtherChangeError: It was superseded.
            StoppingError: The service stops.
        """
        try:
            await self._prepare(deployment)
        except StartupError as error:
            raise ModelNotLoadedError(deployment.name, str(error)) from error
        self._fleet.tell(deployment)
        async for _ in self._fleet.changes():
            self._check_newest(deployment)
            if self._revisions.deployment(deployment.name) == deployment and all(
                deployment in snapshot.deployments for snapshot in self._catalog.snapshots()
            ):
                return
        raise StoppingError

    async def caught_up(self, name: str) -> None:
        """Waits until this router follows the newest deployment of a name that workers know.

        It gives up after `CATCH_UP_SECONDS`, as it may lack the files of that deployment.
        """
        await self._fleet.learn_deployments()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CATCH_UP_SECONDS):
                async for _ in self._fleet.changes():
                    if self._revisions.told(name) in (None, self._revisions.deployment(name)):
                        return

    async def loaded(self, deployment: Deployment, revision: Revision) -> None:
        """Waits until every worker that should have a revision can serve it.

        Raises:
            ModelNotLoadedError: A worker cannot load it, or died while it did.
            OtherChangeError: The deployment was superseded.
            StoppingError: The service stops.
        """
        # Processes that are loading, with the time on the monotonic clock of their last snapshot.
        loading: dict[WorkerId, float] = {}
        async for _ in self._fleet.changes(interval=RETURN_INTERVAL):
            self._check_newest(deployment)
            snapshots = self._catalog.snapshots()
            waiting, ready = False, False
            for worker in loading.keys() - {snapshot.worker_id for snapshot in snapshots}:
                if self._fleet.losses.of(worker) is Loss.DRAINING:
                    del loading[worker]
                elif self._may_return(worker, loading[worker]):
                    waiting = True
                else:
                    # The revision may have needed too much memory, and would need as much on the
                    # next worker.
                    raise LostWhileLoadingError(deployment.name, worker.name)
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
                    loading[snapshot.worker_id] = time.monotonic()
                    waiting = True
                else:
                    loading.pop(snapshot.worker_id, None)
                    ready = True
            if ready and not waiting:
                return
        raise StoppingError

    def _may_return(self, worker: WorkerId, seen: float) -> bool:
        """Whether a process that is not connected may still run.

        Args:
            worker: The process.
            seen: When it was last connected, on the monotonic clock.
        """
        was_restarted = any(other.name == worker.name for other in self._fleet.incarnations())
        return not was_restarted and time.monotonic() < seen + RETURN_SECONDS

    def _check_newest(self, deployment: Deployment) -> None:
        if self._revisions.told(deployment.name) != deployment:
            raise OtherChangeError(deployment.name)
