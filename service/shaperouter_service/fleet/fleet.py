"""The fleet: picks a worker for each request, relays its events, and recovers from losses."""

import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Iterable

import structlog

from shaperouter_service.errors import (
    DeadlinePassedError,
    DeadlyRequestError,
    QueueFullError,
    RelayedError,
    RevisionGoneError,
    WorkerLostError,
)
from shaperouter_service.fleet.call_dispatch import CallDispatch
from shaperouter_service.fleet.connections import Connections
from shaperouter_service.fleet.deadlines import pause, seconds_left
from shaperouter_service.fleet.link import Loss, RunInterruptedError, WorkerLink
from shaperouter_service.fleet.overload import OverloadGuard
from shaperouter_service.fleet.run_attempts import RunAttempts
from shaperouter_service.generation.run_events import Isolated, RunEvent, Stalled
from shaperouter_service.generation.run_request import RunRequest
from shaperouter_service.inference.calls import WorkerCall, WorkerResult
from shaperouter_service.routing.call_decision import CallOption, CallShape
from shaperouter_service.routing.catalog import Catalog
from shaperouter_service.routing.choice import NO_OPTION, Decision
from shaperouter_service.routing.decision import Option, decide
from shaperouter_service.routing.deployments import RevisionState, public_name
from shaperouter_service.routing.ladder import OverLadderError
from shaperouter_service.routing.served_model import ServedModel
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.routing.snapshots import WorkerId
from shaperouter_service.rpc.tls import WorkerTls
from shaperouter_service.telemetry.fleet import FleetMetrics
from shaperouter_service.telemetry.workers import WorkerMetrics

log = structlog.get_logger(__name__)


class Fleet(Connections):
    """Runs requests on the connected workers. Only the event loop may use it."""

    def __init__(
        self,
        catalog: Catalog,
        *,
        metrics: FleetMetrics,
        overload: OverloadGuard,
        worker_metrics: WorkerMetrics | None = None,
        on_message: Callable[[str], None] = lambda _: None,
        tls: WorkerTls | None = None,
    ) -> None:
        """Starts without workers; `set_addresses` adds them.

        Args:
            catalog: The catalog, which the workers' snapshots fill.
            metrics: Metrics of runs on this router.
            overload: Decides which requests may wait.
            worker_metrics: Metrics of the workers, if this process owns them.
            on_message: Called with a worker's address whenever the worker sends something.
            tls: TLS settings for connections to workers; None for plain text.
        """
        super().__init__(
            catalog, metrics=metrics, worker_metrics=worker_metrics, on_message=on_message, tls=tls
        )
        self._overload = overload
        self._calls = CallDispatch(self, overload, metrics)
        for model in catalog.model_names:
            for loss in Loss:
                metrics.runs_resumed.labels(model, loss)
            metrics.deadly_requests.labels(model)

    async def model(self, name: str, deadline: float | None) -> ServedModel:
        """Returns a model's description, once a worker has loaded the model.

        Args:
            name: What workers call the model.
            deadline: Deadline on the monotonic clock, in seconds.

        Raises:
            NoWorkerInTimeError: No worker has loaded it in time.
        """
        while (model := self.catalog.model(name)) is None:
            await self.wait_for_change(name, deadline)
        return model

    async def resolve(
        self,
        name: str,
        deadline: float | None,
        *,
        serves: Callable[[ServedModel], bool],
        call: str,
    ) -> str:
        """Returns the name of a request's model; see `Catalog.resolve`.

        If the choice depends on the kinds of models, this waits until workers have loaded all of
        them.

        Raises:
            NoWorkerInTimeError: A model whose kind matters was not loaded in time.
            UnknownModelError: There is no such model.
            InvalidRequestError: No model was named, and not exactly one can serve the request.
        """
        lasting = self.catalog.revisions.lasting
        if not name and len(lasting) > 1:
            for each in lasting:
                await self.model(self.catalog.revisions.main(each), deadline)
        return self.catalog.resolve(name, serves=serves, call=call)

    async def run(
        self,
        request: RunRequest,
        deadline: float | None,
        *,
        min_tokens: int = 1,
        on_route: Callable[[Decision[Option], str], None] = lambda *_: None,
        on_loss: Callable[[str], None] = lambda _: None,
    ) -> AsyncGenerator[tuple[str, RunEvent], None]:
        """Runs a request on the worker expected to finish it first; waits if there is none.

        If the worker is lost, stops responding or returns the run, another worker continues after
        the tokens generated so far. Beam search generates none before its end and starts again.

        Args:
            request: The run.
            deadline: Deadline on the monotonic clock, in seconds.
            min_tokens: Minimum number of tokens before the run can end.
            on_route: Called with each routing decision, and the revision that its worker has.
            on_loss: Called with the name of a worker that was lost while it had the run.

        Yields:
            The worker's name and its event; never `Isolated`.

        Raises:
            OverloadedError: It would wait too long for a slot.
            DeadlineTooShortError: It could not finish in time.
            NoWorkerInTimeError: No worker was available in time.
            DeadlinePassedError: A worker had the run, which has not finished in time.
            DeadlyRequestError: The run killed workers, alone on the device; see `run_attempts`.
            RevisionGoneError: It had begun, and no worker has the model's files of its beginning.
            RelayedError: The workers refused it.
        """
        attempts = RunAttempts(request)
        while True:
            link, decision = await self._route(attempts, deadline, min_tokens)
            with contextlib.ExitStack() as waiting:
                worker, taken = self._workers[link], decision.taken
                waiting.enter_context(self._overload.waiting(request.client, taken))
                assignment = self.catalog.assign(worker, attempts.remaining(), beams=taken.beams)
                waiting.callback(self.catalog.arrived, assignment)
                on_route(decision, attempts.revision)
                self._log_resumed(attempts, worker)
                try:
                    rest = link.run(attempts.next_request(taken), seconds_left(deadline))
                    recorded = self._recorded(rest, attempts, worker)
                    async with contextlib.aclosing(recorded) as events:
                        async for event in events:
                            if not isinstance(event, Stalled):
                                waiting.close()
                            yield worker.name, event
                    return
                except RunInterruptedError as error:
                    self.interrupted(link, worker, error.loss)
                    attempts.record_loss(worker.name, error.loss)
                    on_loss(worker.name)
                    if end := attempts.completion():
                        yield worker.name, end
                        return
                    if attempts.is_cause:
                        raise self._deadly(attempts) from error
                except RelayedError as error:
                    if error.code is not QueueFullError.code:
                        raise
                    attempts.record_refusal(worker, error)
                finally:
                    self.drop_idle_links()

    async def _route(
        self, attempts: RunAttempts, deadline: float | None, min_tokens: int
    ) -> tuple[WorkerLink, Decision[Option]]:
        """Decides where a run goes, once a worker is available that has not refused it."""
        # Workers of a version that does not tell their revisions count as having any.
        remaining, needed = attempts.remaining(), attempts.needed_revision
        while True:
            links = self.links()
            able = {
                worker: view
                for worker, view in self.catalog.views().items()
                if worker in links and remaining.model in view.ladders
            }
            views = {
                worker: view
                for worker, view in able.items()
                if worker not in attempts.refusals
                and (not needed or view.digests.get(remaining.model, "") in ("", needed))
            }
            try:
                decision = decide(remaining, views.values(), time.monotonic())
            except OverLadderError:
                # A worker with a longer ladder has refused it, or is lost and may return.
                decision = NO_OPTION
            if isinstance(decision, Decision):
                break
            if not attempts.refusals:
                if needed and not views and (able or self._cannot_load(remaining.model)):
                    raise RevisionGoneError(remaining.model)
                await self.wait_for_change(remaining.model, deadline)
                continue
            refusal = attempts.forget_refusals()
            if attempts.loss is None:
                raise refusal
            # The run had a slot and must not lose it because another worker was lost.
            await pause(refusal, deadline)
        taken = decision.taken
        if attempts.loss is None and not attempts.refusals:
            # An alignment has no new tokens.
            min_share = min(1.0, min_tokens / max(1, remaining.likely_tokens))
            self._overload.check(
                attempts.request.client,
                taken,
                device_seconds=taken.prefill_seconds + min_share * taken.decode_seconds,
                seconds_left=seconds_left(deadline),
            )
        (worker,) = (worker for worker, view in views.items() if view.name == taken.worker)
        attempts.revision = views[worker].digests.get(remaining.model, "")
        return links[worker], decision

    def _cannot_load(self, model: str) -> bool:
        """Whether all workers have failed to load a revision."""
        workers = self.catalog.active_workers().values()
        reports = [self.catalog.report(worker, model) for worker in workers]
        return bool(reports) and all(
            report is not None and report.state is RevisionState.FAILED for report in reports
        )

    async def call(
        self,
        request: WorkerCall,
        shape: CallShape,
        deadline: float | None,
        *,
        on_route: Callable[[Decision[CallOption], str], None] = lambda *_: None,
        on_loss: Callable[[str], None] = lambda _: None,
    ) -> tuple[str, WorkerResult]:
        """Calls a model that answers once; see `CallDispatch.call`."""
        return await self._calls.call(request, shape, deadline, on_route=on_route, on_loss=on_loss)

    async def request_compile(
        self, worker: str, signatures: Iterable[Signature]
    ) -> dict[Signature, str]:
        """Requests graphs from a worker without waiting for them; the catalog shows their progress.

        Args:
            worker: Name of the worker.
            signatures: The graphs, in order of priority.

        Returns:
            The graphs that it will not make, with the reason.

        Raises:
            WorkerLostError: The worker is not connected, or was lost before it answered.
            RelayedError: It refused the whole request.
        """
        process = self.catalog.active_workers().get(worker)
        if process is None:
            raise WorkerLostError(worker)
        return await self.request_compile_of(process, signatures)

    async def request_compile_of(
        self, worker: WorkerId, signatures: Iterable[Signature]
    ) -> dict[Signature, str]:
        """Requests graphs from one process of a worker; see `request_compile`."""
        link = next((link for link, known in self._workers.items() if known == worker), None)
        if link is None:
            raise WorkerLostError(worker.name)
        return await link.request_compile(signatures)

    def _log_resumed(self, attempts: RunAttempts, worker: WorkerId) -> None:
        if attempts.is_logged or attempts.loss is None:
            return
        attempts.is_logged = True
        name = public_name(attempts.request.model)
        self._metrics.runs_resumed.labels(name, attempts.loss).inc()
        log.warning(
            "run resumed",
            request_id=attempts.request.request_id,
            reason=attempts.loss.value,
            tokens=len(attempts.token_ids),
            losses_here=attempts.lost_here,
            suspect=attempts.is_suspect,
            **{"from": attempts.worker, "to": worker.name},
        )

    async def _recorded(
        self,
        events: AsyncGenerator[RunEvent, None],
        attempts: RunAttempts,
        worker: WorkerId,
    ) -> AsyncGenerator[RunEvent, None]:
        """Records a run's events and yields those for the caller.

        Raises:
            DeadlinePassedError: The worker does not say in time what the run waits for.
        """
        async with contextlib.aclosing(events):
            try:
                async for event in events:
                    attempts.record(event)
                    if not isinstance(event, Isolated):
                        yield event
                        continue
                    log.warning(
                        "suspect isolated",
                        request_id=attempts.request.request_id,
                        worker=worker.name,
                        tokens=len(attempts.token_ids),
                        losses_here=attempts.lost_here,
                    )
            except TimeoutError:
                waited_for = self._waited_for(attempts, worker)
                raise DeadlinePassedError(attempts.request.model, waited_for) from None

    def _waited_for(self, attempts: RunAttempts, worker: WorkerId) -> str:
        """What a run is waiting for, as far as the router knows."""
        view = self.catalog.view(worker)
        if attempts.stalled_on is None and (view is None or view.warm):
            made = len(attempts.token_ids)
            return f"for {worker.name}, in its queue or for its device ({made} tokens were made)"
        graph = attempts.stalled_on or "its first graphs"
        starts = "" if view is None or view.warm else ", while its worker was still starting"
        return f"for {graph} to be compiled{starts}"

    def _deadly(self, attempts: RunAttempts) -> DeadlyRequestError:
        """Reports to operators and the caller that a request kills workers."""
        request = attempts.request
        # The request's id is an exemplar; as a label, it would create a series for each request.
        exemplar = {"request_id": request.request_id}
        self._metrics.deadly_requests.labels(public_name(request.model)).inc(exemplar=exemplar)
        log.error(
            "request refused: workers died of it",
            request_id=request.request_id,
            client=request.client,
            model=request.model,
            worker=attempts.worker,
            tokens=len(attempts.token_ids),
            losses_here=attempts.lost_here,
        )
        return DeadlyRequestError(
            request.request_id, lost=attempts.lost_here, isolated=attempts.lost_isolated
        )
