"""The fleet: picks a worker for each request, relays its events, and recovers from losses."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable

import structlog

from shaperouter_service.errors import (
    DeadlinePassedError,
    DeadlyRequestError,
    NoWorkerInTimeError,
    QueueFullError,
    RelayedError,
    WorkerLostError,
)
from shaperouter_service.fleet.journey import Journey
from shaperouter_service.fleet.link import Loss, RunInterruptedError, WorkerLink
from shaperouter_service.fleet.overload import OverloadGuard
from shaperouter_service.generation.run_events import Isolated, RunEvent, Stalled
from shaperouter_service.generation.run_request import RunRequest
from shaperouter_service.routing.catalog import Catalog
from shaperouter_service.routing.decision import Decision, decide
from shaperouter_service.routing.served_model import ServedModel
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.routing.snapshots import Snapshot, WorkerId
from shaperouter_service.rpc.deadlines import MARGIN, seconds_to_wait
from shaperouter_service.rpc.tls import WorkerTls
from shaperouter_service.telemetry.fleet import FleetMetrics
from shaperouter_service.telemetry.workers import WorkerMetrics

log = structlog.get_logger(__name__)

# Seconds until a run that had a slot is offered again to workers whose queues were full.
QUEUE_PAUSE = 0.5


class Fleet:
    """A router's workers. Only the event loop may use it.

    Attributes:
        catalog: The state of the workers.
        changes_ended: Whether the service is stopping; see `end_changes`.
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
            catalog: The catalog, which the workers' snapshots fill.
            metrics: Metrics of runs on this router.
            overload: Decides which requests may wait.
            worker_metrics: Metrics of the workers, if this process owns them.
            on_heard: Called with a worker's address whenever the worker sends something.
            tls: TLS settings for connections to workers; None for plain text.
        """
        self.catalog = catalog
        self._metrics = metrics
        self._overload = overload
        self._worker_metrics = worker_metrics
        self._on_heard = on_heard
        self._tls = tls
        self._changed = asyncio.Event()
        self.changes_ended = False
        self._watching: dict[WorkerLink, asyncio.Task[None]] = {}
        # Workers at addresses that are currently listed; others are followed until they end.
        self._named: set[WorkerLink] = set()
        # Workers that answer.
        self._workers: dict[WorkerLink, WorkerId] = {}
        self._ignored: set[WorkerLink] = set()
        for loss in Loss:
            metrics.workers_lost.labels(loss)
            for model in catalog.model_names:
                metrics.runs_resumed.labels(model, loss)
        for model in catalog.model_names:
            metrics.deadly_requests.labels(model)

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
        self._named = {
            known.get(address) or self._follow(address) for address in dict.fromkeys(addresses)
        }
        self._let_go()

    async def changes(self) -> AsyncIterator[None]:
        """Yields at once, and then whenever the catalog has changed, until `end_changes`."""
        while not self.changes_ended:
            changed = self._changed
            yield
            await changed.wait()

    def end_changes(self) -> None:
        """Ends all streams of changes, which would otherwise delay a stop forever."""
        self.changes_ended = True
        self._notify()

    async def model(self, name: str, deadline: float | None) -> ServedModel:
        """Returns a model's description, once a worker has loaded the model.

        Args:
            name: A model of the catalog.
            deadline: Deadline on the monotonic clock, in seconds.

        Raises:
            NoWorkerInTimeError: No worker has loaded it in time.
        """
        while (model := self.catalog.model(name)) is None:
            await self._wait_for_change(name, deadline)
        return model

    async def resolve(
        self,
        name: str,
        deadline: float | None,
        *,
        serves: Callable[[ServedModel], bool],
        call: str,
    ) -> str:
        """Returns the model for a request; see `Catalog.resolve`.

        If the choice depends on the kinds of models, this waits until workers have loaded all of
        them.

        Raises:
            NoWorkerInTimeError: A model whose kind matters was not loaded in time.
            UnknownModelError: There is no such model.
            InvalidRequestError: No model was named, and not exactly one can serve the request.
        """
        if not name and len(self.catalog.model_names) > 1:
            for each in self.catalog.model_names:
                await self.model(each, deadline)
        return self.catalog.resolve(name, serves=serves, call=call)

    async def run(
        self,
        request: RunRequest,
        deadline: float | None,
        *,
        least_tokens: int = 1,
        on_route: Callable[[Decision], None] = lambda _: None,
    ) -> AsyncGenerator[tuple[str, RunEvent], None]:
        """Runs a request on the worker expected to finish it first; waits if there is none.

        If the worker is lost, stops responding or returns the run, another worker continues after
        the tokens generated so far. Beam search generates none before its end and starts again.

        Args:
            request: The run.
            deadline: Deadline on the monotonic clock, in seconds.
            least_tokens: Minimum number of tokens before the run can end.
            on_route: Called with each routing decision.

        Yields:
            The worker's name and its event; never `Isolated`.

        Raises:
            OverloadedError: It would wait too long for a slot.
            DeadlineTooShortError: It could not finish in time.
            NoWorkerInTimeError: No worker was available in time.
            DeadlinePassedError: A worker had the run, which has not finished in time.
            DeadlyRequestError: The run killed workers, alone on the device; see `journey`.
            RelayedError: The workers refused it.
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
                    rest = link.run(journey.rest(taken), _seconds_left(deadline))
                    noted = self._noted(rest, journey, worker, deadline)
                    async with contextlib.aclosing(noted) as events:
                        async for event in events:
                            if not isinstance(event, Stalled):
                                waiting.close()
                            yield worker.name, event
                    return
                except RunInterruptedError as error:
                    # A run may learn late of its worker's end, when another process of the worker
                    # is already running.
                    if self._workers.get(link) == worker:
                        self._lost(link, error.loss)
                    # The run's end had arrived; only the end of the call had not.
                    if journey.ended:
                        return
                    journey.interrupted(worker.name, error.loss)
                    if end := journey.end():
                        yield worker.name, end
                        return
                    if journey.is_cause:
                        raise self._deadly(journey) from error
                except RelayedError as error:
                    if error.code is not QueueFullError.code:
                        raise
                    journey.refused(worker, error)
                finally:
                    self._let_go()

    async def _place(
        self, journey: Journey, deadline: float | None, least_tokens: int
    ) -> tuple[WorkerLink, Decision]:
        """Decides where a run goes, once a worker is available that has not refused it."""
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
            # The run had a slot and must not lose it because another worker was lost.
            await _pause(refusal, deadline)
        taken = decision.taken
        if journey.loss is None and not journey.refusals:
            self._overload.check(
                journey.request.client,
                taken,
                # An alignment has no new tokens.
                least_share=min(1.0, least_tokens / max(1, ask.new_tokens)),
                seconds_left=_seconds_left(deadline),
            )
        (worker,) = (worker for worker, view in views.items() if view.name == taken.worker)
        return links[worker], decision

    def lives(self) -> dict[WorkerId, str]:
        """Addresses of all running worker processes."""
        return {life: link.address for link, life in self._workers.items()}

    def life_at(self, address: str) -> WorkerId | None:
        """The worker process that answers at an address; None if there is none."""
        lives = (life for link, life in self._workers.items() if link.address == address)
        return next(lives, None)

    async def want(self, worker: str, signatures: Iterable[Signature]) -> dict[Signature, str]:
        """Requests graphs from a worker without waiting for them; the catalog shows their progress.

        Args:
            worker: Name of the worker.
            signatures: The graphs, in order of worth.

        Returns:
            The graphs that it will not make, with the reason.

        Raises:
            WorkerLostError: The worker is not connected, or was lost before it answered.
            RelayedError: It refused the whole request.
        """
        life = self.catalog.active_workers().get(worker)
        if life is None:
            raise WorkerLostError(worker)
        return await self.want_of(life, signatures)

    async def want_of(
        self, life: WorkerId, signatures: Iterable[Signature]
    ) -> dict[Signature, str]:
        """Requests graphs from one process of a worker; see `want`."""
        link = next((link for link, known in self._workers.items() if known == life), None)
        if link is None:
            raise WorkerLostError(life.name)
        return await link.want(signatures)

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
            losses_here=journey.lost_here,
            suspect=journey.is_suspect,
            **{"from": journey.worker, "to": worker.name},
        )

    async def _noted(
        self,
        events: AsyncGenerator[RunEvent, None],
        journey: Journey,
        worker: WorkerId,
        deadline: float | None,
    ) -> AsyncGenerator[RunEvent, None]:
        """Records a run's events and yields those for the caller.

        Raises:
            DeadlinePassedError: The worker does not say in time what the run waits for.
        """
        left = _seconds_left(deadline)
        until = None if left is None else _now() + seconds_to_wait(left)
        async with contextlib.aclosing(events):
            while True:
                try:
                    async with asyncio.timeout_at(until):
                        event = await anext(events, None)
                except TimeoutError:
                    waited_for = self._waited_for(journey, worker)
                    raise DeadlinePassedError(journey.request.model, waited_for) from None
                if event is None:
                    return
                journey.got(event)
                if not isinstance(event, Isolated):
                    yield event
                    continue
                log.warning(
                    "suspect isolated",
                    request_id=journey.request.request_id,
                    worker=worker.name,
                    tokens=len(journey.token_ids),
                    losses_here=journey.lost_here,
                )

    def _waited_for(self, journey: Journey, worker: WorkerId) -> str:
        """What a run waits for, as far as the router knows."""
        view = self.catalog.view(worker)
        if journey.stalled_on is None and (view is None or view.warm):
            made = len(journey.token_ids)
            return f"for {worker.name}, in its queue or for its device ({made} tokens were made)"
        graph = journey.stalled_on or "its first graphs"
        starts = "" if view is None or view.warm else ", while its worker was still starting"
        return f"for {graph} to be compiled{starts}"

    def _deadly(self, journey: Journey) -> DeadlyRequestError:
        """Reports to operators and the caller that a request kills workers."""
        request = journey.request
        # The request's id is an exemplar; as a label, it would create a series for each request.
        exemplar = {"request_id": request.request_id}
        self._metrics.deadly_requests.labels(request.model).inc(exemplar=exemplar)
        log.error(
            "request refused: workers died of it",
            request_id=request.request_id,
            client=request.client,
            model=request.model,
            worker=journey.worker,
            tokens=len(journey.token_ids),
            losses_here=journey.lost_here,
        )
        return DeadlyRequestError(
            request.request_id, lost=journey.lost_here, isolated=journey.lost_isolated
        )

    async def _wait_for_change(self, model: str, deadline: float | None) -> None:
        try:
            async with asyncio.timeout_at(_loop_time(deadline)):
                await self._changed.wait()
        except TimeoutError as error:
            was_loaded = self.catalog.model(model) is not None
            raise NoWorkerInTimeError(model, was_loaded=was_loaded) from error

    # The connections to workers.

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
        """Drops idle workers whose addresses have disappeared."""
        for link in set(self._watching) - self._named - set(self._workers):
            if not link.running:
                self._watching.pop(link).cancel()
                self._ignored.discard(link)
                log.info("worker removed", address=link.address)

    def _snapshot(self, link: WorkerLink, snapshot: Snapshot) -> None:
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
        # Present waiters hold the old event; later ones wait for the new one.
        self._changed.set()
        self._changed = asyncio.Event()


async def _pause(error: RelayedError, deadline: float | None) -> None:
    """Waits before another attempt.

    Raises:
        RelayedError: The deadline is too near.
    """
    left = _seconds_left(deadline)
    if left is not None and left < QUEUE_PAUSE + MARGIN:
        raise error
    await asyncio.sleep(QUEUE_PAUSE)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _seconds_left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())


def _loop_time(deadline: float | None) -> float | None:
    """Converts a deadline on the monotonic clock to the event loop's clock."""
    if deadline is None:
        return None
    return deadline - MARGIN - time.monotonic() + asyncio.get_running_loop().time()
