"""Calls of models that answer once: picks a worker for each, and repeats it elsewhere after a loss.

A call has no state, so if its worker is lost, hangs or drains, the whole call is sent to another
worker. Calls are computed together, so it is unknown which of them killed a worker. A call that was
on several dead workers is a suspect and is computed alone. If it kills workers even then, it is
refused.
"""

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import Callable

import structlog

from shaperouter_service.errors import (
    DeadlinePassedError,
    DeadlyRequestError,
    QueueFullError,
    RelayedError,
)
from shaperouter_service.fleet.connections import Connections
from shaperouter_service.fleet.deadlines import answer_by, pause, seconds_left
from shaperouter_service.fleet.link import Loss, RunInterruptedError, WorkerLink
from shaperouter_service.fleet.overload import OverloadGuard
from shaperouter_service.fleet.run_attempts import LOSSES_OF_CAUSES, LOSSES_OF_SUSPECTS
from shaperouter_service.inference.calls import WorkerCall, WorkerResult
from shaperouter_service.routing.call_decision import CallOption, CallShape, decide_call
from shaperouter_service.routing.choice import NO_OPTION, Decision
from shaperouter_service.routing.deployments import public_name
from shaperouter_service.routing.ladder import OverLadderError
from shaperouter_service.routing.snapshots import WorkerId
from shaperouter_service.routing.views import WorkerView
from shaperouter_service.telemetry.fleet import FleetMetrics

log = structlog.get_logger(__name__)


@dataclasses.dataclass
class _Attempts:
    """The attempts to serve one call.

    Attributes:
        lost: Number of workers that died or hung with it.
        lost_isolated: Number of these that computed nothing else.
        interrupted: Whether a worker that had accepted it could not keep it.
        refusals: Refusals of workers without room for it.
    """

    lost: int = 0
    lost_isolated: int = 0
    interrupted: bool = False
    refusals: dict[WorkerId, RelayedError] = dataclasses.field(default_factory=dict)

    def record_loss(self, error: RunInterruptedError) -> None:
        """Records that a worker could not keep it."""
        self.interrupted = True
        # A worker that returns a call is healthy.
        if error.loss is not Loss.DRAINING:
            self.lost += 1
            self.lost_isolated += error.isolated


class CallDispatch:
    """Serves calls on connected workers. Only the event loop may use it."""

    def __init__(
        self, connections: Connections, overload: OverloadGuard, metrics: FleetMetrics
    ) -> None:
        """Takes the workers, what decides which calls may wait, and the metrics."""
        self._connections = connections
        self._overload = overload
        self._metrics = metrics

    async def call(
        self,
        request: WorkerCall,
        shape: CallShape,
        deadline: float | None,
        *,
        on_route: Callable[[Decision[CallOption], str], None],
        on_loss: Callable[[str], None],
    ) -> tuple[str, WorkerResult]:
        """Calls a model on the worker expected to answer first; waits if there is none.

        Args:
            request: The call, checked.
            shape: Its sizes.
            deadline: Deadline on the monotonic clock, in seconds.
            on_route: Called with each routing decision, and the revision that its worker has.
            on_loss: Called with the name of a worker that was lost while it had the call.

        Returns:
            The worker's name and the result.

        Raises:
            OverloadedError: It would wait too long.
            DeadlineTooShortError: It could not finish in time.
            NoWorkerInTimeError: No worker was available in time.
            DeadlinePassedError: A worker had the call, and has not answered in time.
            DeadlyRequestError: The call killed workers while they computed nothing else.
            RelayedError: The workers refused it.
        """
        attempts = _Attempts()
        while True:
            link, worker, view, decision = await self._route(request, shape, attempts, deadline)
            suspect = attempts.lost >= LOSSES_OF_SUSPECTS
            with contextlib.ExitStack() as waiting:
                waiting.enter_context(self._overload.waiting(request.client, decision.taken))
                catalog = self._connections.catalog
                waiting.callback(catalog.arrived, catalog.assign(worker, shape))
                on_route(decision, view.digests.get(request.model, ""))
                try:
                    async with asyncio.timeout_at(answer_by(deadline)):
                        sent = dataclasses.replace(request, suspect=suspect)
                        return worker.name, await link.call(sent, seconds_left(deadline))
                except TimeoutError:
                    raise DeadlinePassedError(request.model, f"for {worker.name}") from None
                except RunInterruptedError as error:
                    self._connections.interrupted(link, worker, error.loss)
                    attempts.record_loss(error)
                    on_loss(worker.name)
                    self._metrics.runs_resumed.labels(public_name(request.model), error.loss).inc()
                    log.warning(
                        "call interrupted",
                        request_id=request.request_id,
                        worker=worker.name,
                        reason=error.loss.value,
                        losses=attempts.lost,
                        suspect=suspect,
                    )
                    if attempts.lost_isolated >= LOSSES_OF_CAUSES:
                        raise self._deadly(request, attempts) from error
                except RelayedError as error:
                    if error.code is not QueueFullError.code:
                        raise
                    attempts.refusals[worker] = error
                finally:
                    self._connections.drop_idle_links()

    async def _route(
        self, request: WorkerCall, shape: CallShape, attempts: _Attempts, deadline: float | None
    ) -> tuple[WorkerLink, WorkerId, WorkerView, Decision[CallOption]]:
        """Decides where a call goes, once a worker is available that has not refused it."""
        while True:
            links = self._connections.links()
            views = {
                view.name: (worker, view)
                for worker, view in self._connections.catalog.views().items()
                if worker in links
                and worker not in attempts.refusals
                and request.model in view.calls
            }
            try:
                decision = decide_call(
                    shape, (view for _, view in views.values()), time.monotonic()
                )
            except OverLadderError:
                # A worker with a longer ladder has refused it, or is lost and may return.
                decision = NO_OPTION
            if isinstance(decision, Decision):
                break
            if not attempts.refusals:
                await self._connections.wait_for_change(request.model, deadline)
                continue
            *_, refusal = attempts.refusals.values()
            attempts.refusals.clear()
            if not attempts.interrupted:
                raise refusal
            # A call that a worker had accepted must not be lost because that worker was.
            await pause(refusal, deadline)
        taken = decision.taken
        if not attempts.interrupted and not attempts.refusals:
            self._overload.check(
                request.client,
                taken,
                device_seconds=taken.call_seconds,
                seconds_left=seconds_left(deadline),
            )
        worker, view = views[taken.worker]
        return links[worker], worker, view, decision

    def _deadly(self, request: WorkerCall, attempts: _Attempts) -> DeadlyRequestError:
        """Reports to operators and the caller that a call kills workers."""
        # The request's id is an exemplar; as a label, it would create a series for each request.
        exemplar = {"request_id": request.request_id}
        self._metrics.deadly_requests.labels(public_name(request.model)).inc(exemplar=exemplar)
        log.error(
            "request refused: workers died of it",
            request_id=request.request_id,
            client=request.client,
            model=request.model,
            losses=attempts.lost,
        )
        return DeadlyRequestError(
            request.request_id, lost=attempts.lost, isolated=attempts.lost_isolated
        )
