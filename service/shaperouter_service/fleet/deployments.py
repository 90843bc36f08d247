"""Brings deployments from workers to this router, and from this router to workers."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import structlog

from shaperouter_service.errors import Code, RelayedError, StartupError, WorkerLostError
from shaperouter_service.fleet.fleet import Fleet
from shaperouter_service.fleet.link import WorkerLink
from shaperouter_service.routing.deployments import Deployment, Orders
from shaperouter_service.routing.snapshots import WorkerId
from shaperouter_service.system.background import in_background, survive_errors

# Seconds before the router prepares again for a deployment that it could not prepare for.
RETRY = 10.0

log = structlog.get_logger(__name__)


@in_background
async def deploying(fleet: Fleet, prepare: Callable[[Deployment], Awaitable[None]]) -> None:
    """Inside the context, follows the deployments that workers report, and sends them to others.

    It keeps doing so while the router drains. Unfinished requests may move to workers that have
    just started and need the loaded revisions, and no other process may know which these are.

    Args:
        fleet: The workers.
        prepare: Prepares the router for the revisions of a deployment; raises a StartupError if it
            cannot. The router then still follows the previous deployment, and its workers keep that
            loaded.
    """
    deployer = _Deployer(fleet, prepare)
    async for _ in fleet.changes(while_draining=True):
        with survive_errors("following deployments"):
            await deployer.follow()
        with survive_errors("telling deployments"):
            await deployer.tell()


class _Deployer:
    """Follows and tells deployments. Only the event loop may use it."""

    def __init__(self, fleet: Fleet, prepare: Callable[[Deployment], Awaitable[None]]) -> None:
        self._fleet = fleet
        self._revisions = fleet.catalog.revisions
        self._prepare = prepare
        # The orders that each worker has, and the number of the watch in which it got them. When a
        # router's watch ends, the worker forgets that router's orders.
        self._sent: dict[WorkerId, tuple[int, Orders]] = {}
        # Deployments that the router could not prepare for, and when to try again.
        self._failed: dict[str, tuple[Deployment, float]] = {}

    async def follow(self) -> None:
        """Follows the newest deployments, as far as the router can prepare for them."""
        for deployment in self._revisions.pending():
            failed, retry_at = self._failed.get(deployment.name, (None, 0.0))
            if failed == deployment and time.monotonic() < retry_at:
                continue
            try:
                await self._prepare(deployment)
            # Files, threads or memory may be missing; the models of other deployments are not
            # concerned, and this one is tried again.
            except Exception as error:
                self._failed[deployment.name] = deployment, time.monotonic() + RETRY
                log.warning(
                    "deployment not followed",
                    model=deployment.name,
                    reason=str(error) or type(error).__name__,
                    exc_info=None if isinstance(error, StartupError) else error,
                )
                continue
            self._failed.pop(deployment.name, None)
            self._fleet.follow(deployment)
            log.info(
                "deployment followed",
                model=deployment.name,
                version=deployment.version,
                revisions={revision.model: revision.share for revision in deployment.revisions},
            )

    async def tell(self) -> None:
        """Sends the router's orders to the workers that lack them."""
        orders = self._revisions.orders(self._fleet.router_id)
        links = self._fleet.links()
        self._sent = {worker: sent for worker, sent in self._sent.items() if worker in links}
        if not orders.deployments:
            return
        due = {
            worker: link
            for worker, link in links.items()
            if self._sent.get(worker) != (link.watches, orders)
        }
        await asyncio.gather(*(self._tell(worker, link, orders) for worker, link in due.items()))

    async def _tell(self, worker: WorkerId, link: WorkerLink, orders: Orders) -> None:
        watches = link.watches
        try:
            await link.deploy(orders)
        except WorkerLostError:
            return
        except RelayedError as error:
            if error.code is not Code.UNIMPLEMENTED:
                log.warning("worker refused deployments", worker=worker.name, reason=str(error))
                return
            log.warning("worker's version cannot load models at run time", worker=worker.name)
        self._sent[worker] = watches, orders
