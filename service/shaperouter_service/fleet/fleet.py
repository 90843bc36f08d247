"""The fleet: picks a worker for a request and passes on what it says."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable

import structlog

from shaperouter.v1 import model_pb2, worker_pb2
from shaperouter_service.errors import DeadlinePassedError, WorkerLostError
from shaperouter_service.fleet.link import WorkerLink
from shaperouter_service.messages import signature_from_proto, signature_to_proto
from shaperouter_service.routing.catalog import Catalog
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.telemetry.workers import WorkerMetrics

log = structlog.get_logger(__name__)

# Times a request is handed to a worker before it is given up. A second worker helps if the first
# died of something else; a request that kills workers must not go on to kill them all.
ATTEMPTS = 2

# Seconds before its deadline at which a request without a worker is given up: enough for the reason
# to arrive before the caller's own clock ends the call without one.
MARGIN = 0.1


class Fleet:
    """The workers of a router. Belongs to the event loop.

    Attributes:
        catalog: What is known of them.
    """

    def __init__(
        self, catalog: Catalog, addresses: Iterable[str], metrics: WorkerMetrics | None
    ) -> None:
        """Prepares the connections.

        Args:
            catalog: Filled from the workers' snapshots.
            addresses: Of the workers, as gRPC writes them.
            metrics: Where this process owns the workers' metrics.
        """
        self.catalog = catalog
        self._metrics = metrics
        self._changed = asyncio.Event()
        self._changes_ended = False
        self._names: dict[WorkerLink, str] = {}
        self._ignored: set[WorkerLink] = set()
        self._links = [
            WorkerLink(address, on_snapshot=self._snapshot, on_lost=self._lost)
            for address in addresses
        ]

    @contextlib.asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        """Follows the workers inside of the context."""
        watching = [asyncio.create_task(link.watch()) for link in self._links]
        try:
            yield
        finally:
            for task in watching:
                task.cancel()
            await asyncio.gather(*watching, return_exceptions=True)
            for link in self._links:
                await link.close()

    async def changes(self) -> AsyncIterator[None]:
        """Yields at once, and then whenever the catalog has changed, until `end_changes`."""
        while not self._changes_ended:
            changed = self._changed
            yield
            await changed.wait()

    def end_changes(self) -> None:
        """Ends all that follow the changes: what never ends by itself must not delay a stop."""
        self._changes_ended = True
        self._notify()

    async def model(self, name: str, deadline: float | None) -> model_pb2.Model:
        """Describes a model, waiting until a worker has loaded it.

        Args:
            name: One of the catalog's models.
            deadline: On the monotonic clock, in seconds.

        Raises:
            DeadlinePassedError: No worker has loaded it in time.
        """
        while (model := self.catalog.model(name)) is None:
            await self._wait_for_change(name, deadline)
        return model

    async def run(
        self, request: worker_pb2.RunRequest, deadline: float | None
    ) -> AsyncGenerator[tuple[str, worker_pb2.RunResponse], None]:
        """Runs a request on the least busy worker, waiting for one if there is none.

        A worker that is lost before its first token is replaced by another in silence.

        Args:
            request: What to run.
            deadline: On the monotonic clock, in seconds.

        Yields:
            The worker's name and what it says.

        Raises:
            DeadlinePassedError: No worker was there in time.
            WorkerLostError: The worker was lost; the request may be sent again.
            RelayedError: The worker refused.
        """
        attempt = 1
        while True:
            link = await self._pick(request.model, deadline)
            name, begun = self._names[link], False
            seconds_left = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                async with contextlib.aclosing(link.run(request, seconds_left)) as responses:
                    async for response in responses:
                        begun = begun or response.HasField("tokens")
                        yield name, response
                return
            except WorkerLostError as error:
                self._lost(link)
                if begun or attempt == ATTEMPTS:
                    raise WorkerLostError(name) from error
                log.warning("trying again", request_id=request.request_id, lost=name)
                attempt += 1

    async def want(self, worker: str, signatures: Iterable[Signature]) -> dict[Signature, str]:
        """Asks a worker for graphs, and does not wait for them: the catalog tells.

        Args:
            worker: Its name.
            signatures: Which, in order of worth.

        Returns:
            Those that it will not make, with the reason.

        Raises:
            WorkerLostError: The worker is not connected, or was lost before it answered.
            RelayedError: It refused the whole wish.
        """
        link = next((link for link, name in self._names.items() if name == worker), None)
        if link is None:
            raise WorkerLostError(worker)
        request = worker_pb2.WantRequest(signatures=map(signature_to_proto, signatures))
        response = await link.want(request)
        return {signature_from_proto(each.signature): each.reason for each in response.refused}

    async def _pick(self, model: str, deadline: float | None) -> WorkerLink:
        while True:
            able = set(self.catalog.workers(model))
            links = [link for link, name in self._names.items() if name in able]
            if links:
                return min(links, key=lambda link: link.running)
            await self._wait_for_change(model, deadline)

    async def _wait_for_change(self, model: str, deadline: float | None) -> None:
        try:
            async with asyncio.timeout_at(_loop_time(deadline)):
                await self._changed.wait()
        except TimeoutError as error:
            raise DeadlinePassedError(model) from error

    def _snapshot(self, link: WorkerLink, snapshot: worker_pb2.WatchResponse) -> None:
        if any(n == snapshot.worker and k is not link for k, n in self._names.items()):
            if link not in self._ignored:
                self._ignored.add(link)
                log.error("worker ignored: name taken", worker=snapshot.worker, at=link.address)
            return
        self._ignored.discard(link)
        if link not in self._names:
            log.info("worker ready", worker=snapshot.worker, device=snapshot.device)
        self._names[link] = snapshot.worker
        self.catalog.update(snapshot)
        if self._metrics:
            self._metrics.observe(snapshot)
        self._notify()

    def _lost(self, link: WorkerLink) -> None:
        name = self._names.pop(link, None)
        if name is None:
            return
        self.catalog.lose(name)
        if self._metrics:
            self._metrics.lose(name)
        self._notify()

    def _notify(self) -> None:
        # Those who wait hold the old event; those to come will wait for the new one.
        self._changed.set()
        self._changed = asyncio.Event()


def _loop_time(deadline: float | None) -> float | None:
    """When to give up, on the event loop's clock, for a deadline on the monotonic one."""
    if deadline is None:
        return None
    return deadline - MARGIN - time.monotonic() + asyncio.get_running_loop().time()
