"""The fleet: picks a worker for a request, passes on what it says, and goes on after losses."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable

import structlog

from shaperouter.v1 import model_pb2, worker_pb2
from shaperouter_service.errors import DeadlinePassedError, QueueFullError, WorkerLostError
from shaperouter_service.fleet.journey import Journey
from shaperouter_service.fleet.link import Loss, RunInterruptedError, WorkerLink
from shaperouter_service.fleet.overload import OverloadGuard
from shaperouter_service.messages import signature_from_proto, signature_to_proto
from shaperouter_service.routing.catalog import Catalog, WorkerId
from shaperouter_service.routing.decision import Decision, decide
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.rpc.status import RelayedError
from shaperouter_service.rpc.tls import WorkerTls
from shaperouter_service.telemetry.fleet import FleetMetrics
from shaperouter_service.telemetry.workers import WorkerMetrics

log = structlog.get_logger(__name__)

# Workers that may be lost with a run at one token. A request that kills workers does so at the same
# token again, since nothing else is random in it, and must not kill them all. One that gets further
# each time was only in their company, and goes on for as long as its deadline lets it.
ATTEMPTS = 3

# Seconds until a run that had a place is offered again to workers whose queues are full.
QUEUE_PAUSE = 0.5

# Seconds before its deadline at which a request without a worker is given up: enough for the reason
# to arrive before the caller's own clock ends the call without one.
MARGIN = 0.1


class Fleet:
    """The workers of a router. Belongs to the event loop.

    Attributes:
        catalog: What is known of them.
    """

    def __init__(
        self,
        catalog: Catalog,
        *,
        metrics: FleetMetrics,
        overload: OverloadGuard,
        worker_metrics: WorkerMetrics | None = None,
        on_heard: Callable[[str], None] = lambda _: None,
        tls: WorkerTls | None = None,
    ) -> None:
        """Starts without workers; `set_addresses` adds them.

        Args:
            catalog: Filled from the workers' snapshots.
            metrics: Of what happens to runs here.
            overload: Says what may wait.
            worker_metrics: Where this process owns the workers' metrics.
            on_heard: Told the address of a worker whenever it is heard from.
            tls: What is asked of them; None speaks plain text.
        """
        self.catalog = catalog
        self._metrics = metrics
        self._overload = overload
        self._worker_metrics = worker_metrics
        self._on_heard = on_heard
        self._tls = tls
        self._changed = asyncio.Event()
        self._changes_ended = False
        self._watching: dict[WorkerLink, asyncio.Task[None]] = {}
        # At addresses that are named now; others are followed to their end.
        self._named: set[WorkerLink] = set()
        # Those that answer.
        self._workers: dict[WorkerLink, WorkerId] = {}
        self._ignored: set[WorkerLink] = set()
        for loss in Loss:
            metrics.workers_lost.labels(loss)
            for model in catalog.model_names:
                metrics.runs_resumed.labels(model, loss)

    @contextlib.asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        """Follows the workers inside of the context."""
        try:
            yield
        finally:
            tasks = list(self._watching.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def set_addresses(self, addresses: Iterable[str]) -> None:
        """Says where the workers are from now on.

        A worker at an address that is not named any more serves for as long as it answers.
        """
        known = {link.address: link for link in self._watching}
        self._named = {
            known.get(address) or self._follow(address) for address in dict.fromkeys(addresses)
        }
        self._let_go()

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
        self,
        request: worker_pb2.RunRequest,
        deadline: float | None,
        *,
        least_tokens: int = 1,
        on_route: Callable[[Decision], None] = lambda _: None,
    ) -> AsyncGenerator[tuple[str, worker_pb2.RunResponse], None]:
        """Runs a request where it is expected to end soonest, waiting if there is no worker.

        If the worker is lost, falls silent or gives the run back, another goes on after the tokens
        there are; beam search, which has none before its end, starts over.

        Args:
            request: What to run.
            deadline: On the monotonic clock, in seconds.
            least_tokens: That are made before the run can end.
            on_route: Told each decision on where the run goes.

        Yields:
            The worker's name and what it says.

        Raises:
            OverloadedError: It would wait too long for a slot.
            DeadlineTooShortError: It could not end in time.
            DeadlinePassedError: No worker was there in time.
            WorkerLostError: Worker after worker was lost with it; see ATTEMPTS.
            RelayedError: The workers refused.
        """
        journey = Journey(request)
        while True:
            link, decision = await self._place(journey, deadline, least_tokens)
            with contextlib.ExitStack() as waiting:
                worker, taken = self._workers[link], decision.taken
                waiting.enter_context(self._overload.waiting(request.client, taken))
                assignment = self.catalog.assign(worker, taken.decode.beams, journey.ask())
                waiting.callback(self.catalog.arrived, assignment)
                on_route(decision)
                self._tell_resumed(journey, worker)
                try:
                    async with contextlib.aclosing(
                        link.run(journey.rest(taken), _seconds_left(deadline))
                    ) as responses:
                        async for response in responses:
                            if not response.HasField("stall"):
                                waiting.close()
                            journey.got(response)
                            yield worker.name, response
                    return
                except RunInterruptedError as error:
                    # A run may learn late of its worker's end, when another life is there already.
                    if self._workers.get(link) == worker:
                        self._lost(link, error.loss)
                    # Its end came, and only the call's did not.
                    if journey.ended:
                        return
                    journey.interrupted(worker.name, error.loss)
                    if end := journey.end():
                        yield worker.name, end
                        return
                    if journey.lost_here == ATTEMPTS:
                        raise WorkerLostError(worker.name) from error
                except RelayedError as error:
                    if error.code is not QueueFullError.code:
                        raise
                    journey.refused(worker, error)
                finally:
                    self._let_go()

    async def _place(
        self, journey: Journey, deadline: float | None, least_tokens: int
    ) -> tuple[WorkerLink, Decision]:
        """Decides where a run goes, once there is a worker that has not refused it."""
        ask = journey.ask()
        while True:
            links = {worker: link for link, worker in self._workers.items()}
            views = {
                worker: view
                for worker, view in self.catalog.views().items()
                if worker in links and worker not in journey.refusals and ask.model in view.ladders
            }
            decision = decide(ask, views.values(), time.monotonic())
            if isinstance(decision, Decision):
                break
            if not journey.refusals:
                await self._wait_for_change(ask.model, deadline)
                continue
            refusal = journey.forget_refusals()
            if journey.loss is None:
                raise refusal
            # It had its place, and is not to lose it by a loss that is not its own.
            await _pause(refusal, deadline)
        taken = decision.taken
        if journey.loss is None and not journey.refusals:
            self._overload.check(
                journey.request.client,
                taken,
                # What is aligned has no new tokens.
                least_share=min(1.0, least_tokens / max(1, ask.new_tokens)),
                seconds_left=_seconds_left(deadline),
            )
        (worker,) = (worker for worker, view in views.items() if view.name == taken.worker)
        return links[worker], decision

    def lives(self) -> dict[WorkerId, str]:
        """Where each life of a worker answers."""
        return {life: link.address for link, life in self._workers.items()}

    def life_at(self, address: str) -> WorkerId | None:
        """The life of a worker that answers at an address; None while none does."""
        lives = (life for link, life in self._workers.items() if link.address == address)
        return next(lives, None)

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
        life = self.catalog.bearers().get(worker)
        if life is None:
            raise WorkerLostError(worker)
        return await self.want_of(life, signatures)

    async def want_of(
        self, life: WorkerId, signatures: Iterable[Signature]
    ) -> dict[Signature, str]:
        """Asks one life of a worker for graphs; see `want`."""
        link = next((link for link, known in self._workers.items() if known == life), None)
        if link is None:
            raise WorkerLostError(life.name)
        request = worker_pb2.WantRequest(signatures=map(signature_to_proto, signatures))
        response = await link.want(request)
        return {signature_from_proto(each.signature): each.reason for each in response.refused}

    def _tell_resumed(self, journey: Journey, worker: WorkerId) -> None:
        if journey.told or journey.loss is None:
            return
        journey.told = True
        self._metrics.runs_resumed.labels(journey.request.model, journey.loss).inc()
        log.warning(
            "run resumed",
            request_id=journey.request.request_id,
            reason=journey.loss.value,
            tokens=len(journey.token_ids),
            **{"from": journey.worker, "to": worker.name},
        )

    async def _wait_for_change(self, model: str, deadline: float | None) -> None:
        try:
            async with asyncio.timeout_at(_loop_time(deadline)):
                await self._changed.wait()
        except TimeoutError as error:
            raise DeadlinePassedError(model) from error

    # Its workers.

    def _follow(self, address: str) -> WorkerLink:
        link = WorkerLink(
            address,
            on_heard=self._on_heard,
            on_snapshot=self._snapshot,
            on_lost=self._lost,
            tls=self._tls,
        )

        async def watch() -> None:
            try:
                await link.watch()
            finally:
                await link.close()

        self._watching[link] = asyncio.create_task(watch())
        return link

    def _let_go(self) -> None:
        """Lets go of workers whose addresses have vanished and that do nothing any more."""
        for link in set(self._watching) - self._named - set(self._workers):
            if not link.running:
                self._watching.pop(link).cancel()
                self._ignored.discard(link)
                log.info("worker let go", address=link.address)

    def _snapshot(self, link: WorkerLink, snapshot: worker_pb2.WatchResponse) -> None:
        worker = WorkerId.of(snapshot)
        if any(known == worker and other is not link for other, known in self._workers.items()):
            if link not in self._ignored:
                self._ignored.add(link)
                log.info("worker has another address", worker=worker.name, address=link.address)
            return
        self._ignored.discard(link)
        if self._workers.get(link) != worker:
            if link in self._workers:
                self._lost(link, Loss.LOST)
            log.info(
                "worker connected", worker=worker.name, device=snapshot.device, address=link.address
            )
        self._workers[link] = worker
        self._metrics.workers.set(len(self._workers))
        self.catalog.update(snapshot)
        if self._worker_metrics:
            self._worker_metrics.observe(snapshot)
        self._notify()

    def _lost(self, link: WorkerLink, loss: Loss) -> None:
        worker = self._workers.pop(link, None)
        if worker is not None:
            self._metrics.workers.set(len(self._workers))
            self._metrics.workers_lost.labels(loss).inc()
            self.catalog.lose(worker)
            if self._worker_metrics:
                self._worker_metrics.lose(worker)
            self._notify()
        self._let_go()

    def _notify(self) -> None:
        # Those who wait hold the old event; those to come will wait for the new one.
        self._changed.set()
        self._changed = asyncio.Event()


async def _pause(error: RelayedError, deadline: float | None) -> None:
    """Waits a moment.

    Raises:
        RelayedError: There is no time for it.
    """
    left = _seconds_left(deadline)
    if left is not None and left < QUEUE_PAUSE + MARGIN:
        raise error
    await asyncio.sleep(QUEUE_PAUSE)


def _seconds_left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())


def _loop_time(deadline: float | None) -> float | None:
    """When to give up, on the event loop's clock, for a deadline on the monotonic one."""
    if deadline is None:
        return None
    return deadline - MARGIN - time.monotonic() + asyncio.get_running_loop().time()
