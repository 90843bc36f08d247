"""A router's connections to its workers, whose snapshots fill the catalog."""

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterable

import structlog

from shaperouter_service.errors import NoWorkerInTimeError, ServiceError
from shaperouter_service.fleet.deadlines import worker_by
from shaperouter_service.fleet.link import Loss, WorkerLink
from shaperouter_service.fleet.losses import Losses
from shaperouter_service.routing.catalog import Catalog
from shaperouter_service.routing.deployments import Deployment
from shaperouter_service.routing.snapshots import Snapshot, WorkerId
from shaperouter_service.rpc.tls import WorkerTls
from shaperouter_service.telemetry.fleet import FleetMetrics
from shaperouter_service.telemetry.workers import WorkerMetrics

# Seconds from the start within which requests and changes of models wait for workers that have not
# reported yet.
MEETING_SECONDS = 10.0

log = structlog.get_logger(__name__)


class Connections:
    """Connections to the workers at changing addresses. Only the event loop may use it.

    Attributes:
        catalog: The state of the workers.
        changes_ended: Whether the service is stopping; see `end_changes`.
        losses: The last losses of workers.
        router_id: Identifies this router to workers.
    """

    def __init__(
        self,
        catalog: Catalog,
        *,
        metrics: FleetMetrics,
        worker_metrics: WorkerMetrics | None,
        on_message: Callable[[str], None],
        tls: WorkerTls | None,
    ) -> None:
        """Starts without workers; see `Fleet`."""
        self.catalog = catalog
        self.changes_ended = False
        self.losses = Losses()
        self.router_id = uuid.uuid4().hex
        catalog.revisions.on_release(self._notify)
        self._metrics = metrics
        self._worker_metrics = worker_metrics
        self._on_message = on_message
        self._tls = tls
        self._changed = asyncio.Event()
        self._watching: dict[WorkerLink, asyncio.Task[None]] = {}
        # Workers at addresses that are currently listed; others are followed until they end.
        self._listed: set[WorkerLink] = set()
        # Workers that answer.
        self._workers: dict[WorkerLink, WorkerId] = {}
        self._ignored: set[WorkerLink] = set()
        # Workers that have reported since the start.
        self._met: set[WorkerLink] = set()
        self._meeting_ends = time.monotonic() + MEETING_SECONDS
        for loss in Loss:
            metrics.workers_lost.labels(loss)

    @contextlib.asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        """Follows the workers inside the context."""
        try:
            yield
        finally:
            tasks = list(self._watching.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def set_addresses(self, addresses: Iterable[str]) -> None:
        """Sets the addresses of the workers.

        A worker whose address is no longer listed serves for as long as it answers.
        """
        known = {link.address: link for link in self._watching}
        self._listed = {
            known.get(address) or self._connect(address) for address in dict.fromkeys(addresses)
        }
        self.drop_idle_links()

    async def changes(
        self, *, interval: float | None = None, while_draining: bool = False
    ) -> AsyncIterator[None]:
        """Yields at once, and then whenever the catalog has changed, until `end_changes`.

        Args:
            interval: Maximum seconds between two yields, for a caller that also waits for time to
                pass.
            while_draining: Whether to continue after `end_changes`, for a caller that is cancelled
                in the end.
        """
        while while_draining or not self.changes_ended:
            changed = self._changed
            yield
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(interval):
                    await changed.wait()

    def follow(self, deployment: Deployment) -> None:
        """Sends further requests by a deployment; see `Revisions.follow`."""
        self.catalog.follow(deployment)
        self._notify()

    def tell(self, deployment: Deployment) -> None:
        """Takes a deployment, which `deploying` follows and sends to workers."""
        self.catalog.revisions.tell([deployment])
        self._notify()

    async def learn_deployments(self) -> None:
        """Asks all workers for the deployments that they know.

        Their snapshots would report these up to 0.2 s later. Afterwards this router knows every
        change that another router has finished before.
        """
        orders = self.catalog.revisions.orders(self.router_id)
        answers = await asyncio.gather(
            *(link.deploy(orders) for link in self._workers), return_exceptions=True
        )
        for answer in answers:
            if isinstance(answer, ServiceError):
                # It is gone, or of a version that cannot load models at run time.
                continue
            if isinstance(answer, BaseException):
                raise answer
            self.catalog.revisions.tell(answer)
        self._notify()

    def end_changes(self) -> None:
        """Ends all streams of changes, which would otherwise delay a stop forever."""
        self.changes_ended = True
        self._notify()

    def incarnations(self) -> dict[WorkerId, str]:
        """Addresses of all running worker processes."""
        return {worker: link.address for link, worker in self._workers.items()}

    def incarnation_at(self, address: str) -> WorkerId | None:
        """The worker process that answers at an address; None if there is none."""
        found = (worker for link, worker in self._workers.items() if link.address == address)
        return next(found, None)

    def links(self) -> dict[WorkerId, WorkerLink]:
        """The connections to the workers that answer."""
        return {worker: link for link, worker in self._workers.items()}

    def interrupted(self, link: WorkerLink, worker: WorkerId, loss: Loss) -> None:
        """Records that a run or call was interrupted by its worker's end."""
        # The link may notice that end late, when another process of the worker is already running.
        if self._workers.get(link) == worker:
            self._on_lost(link, loss)

    async def meet_workers(self) -> None:
        """Waits until each listed worker has reported once, but only for some time after the start.

        A router learns from workers what has been loaded. One that has just started may first meet
        a worker that has just started, too, and knows nothing either.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(self._meeting_ends):
                # Addresses come from a file or a name server, and so a little later.
                while not (self._listed and self._listed <= self._met):
                    await self._changed.wait()

    async def wait_for_change(self, model: str, deadline: float | None) -> None:
        """Waits for the next change of the catalog.

        Args:
            model: The model that the caller waits for, for the error.
            deadline: Deadline on the monotonic clock, in seconds.

        Raises:
            NoWorkerInTimeError: The deadline is too near.
        """
        try:
            async with asyncio.timeout_at(worker_by(deadline)):
                await self._changed.wait()
        except TimeoutError as error:
            was_loaded = self.catalog.model(model) is not None
            raise NoWorkerInTimeError(model, was_loaded=was_loaded) from error

    def _connect(self, address: str) -> WorkerLink:
        link = WorkerLink(
            address,
            on_message=self._on_message,
            on_snapshot=self._on_snapshot,
            on_lost=self._on_lost,
            router_id=self.router_id,
            tls=self._tls,
        )

        async def watch() -> None:
            try:
                await link.watch()
            finally:
                await link.close()

        self._watching[link] = asyncio.create_task(watch())
        return link

    def drop_idle_links(self) -> None:
        """Drops idle workers whose addresses have disappeared."""
        for link in set(self._watching) - self._listed - set(self._workers):
            if not link.running:
                self._watching.pop(link).cancel()
                self._ignored.discard(link)
                self._met.discard(link)
                log.info("worker removed", address=link.address)

    def _on_snapshot(self, link: WorkerLink, snapshot: Snapshot) -> None:
        self._met.add(link)
        worker = snapshot.worker_id
        if any(known == worker and other is not link for other, known in self._workers.items()):
            if link not in self._ignored:
                self._ignored.add(link)
                log.info(
                    "second address of a worker ignored", worker=worker.name, address=link.address
                )
            return
        self._ignored.discard(link)
        if self._workers.get(link) != worker:
            if link in self._workers:
                self._on_lost(link, Loss.LOST)
            log.info(
                "worker connected", worker=worker.name, device=snapshot.device, address=link.address
            )
        self._workers[link] = worker
        self._metrics.workers.set(len(self._workers))
        self.catalog.update(snapshot)
        if self._worker_metrics:
            self._worker_metrics.observe(snapshot)
        self._notify()

    def _on_lost(self, link: WorkerLink, loss: Loss) -> None:
        worker = self._workers.pop(link, None)
        if worker is not None:
            self._metrics.workers.set(len(self._workers))
            self._metrics.workers_lost.labels(loss).inc()
            self.losses.add(worker, loss)
            self.catalog.lose(worker)
            if self._worker_metrics:
                self._worker_metrics.lose(worker)
            self._notify()
        self.drop_idle_links()

    def _notify(self) -> None:
        # Present waiters hold the old event; later ones wait for the new one.
        self._changed.set()
        self._changed = asyncio.Event()
