"""A simulated router: the product's decisions, in an event loop that takes time."""

import contextlib
import itertools
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace

from shaperouter_service.errors import OverloadedError, QueueFullError, RelayedError
from shaperouter_service.fleet.compiling import INTERVAL
from shaperouter_service.fleet.deadlines import QUEUE_PAUSE
from shaperouter_service.fleet.link import Loss
from shaperouter_service.fleet.overload import OverloadGuard
from shaperouter_service.fleet.run_attempts import RunAttempts
from shaperouter_service.generation.run_events import NewTokens
from shaperouter_service.generation.run_request import RunRequest
from shaperouter_service.routing.catalog import Catalog
from shaperouter_service.routing.choice import Decision
from shaperouter_service.routing.compile_policy import compile_requests
from shaperouter_service.routing.decision import Option, decide
from shaperouter_service.routing.snapshots import Snapshot, WorkerId
from shaperouter_service.worker.run import Ended, Failed, Run, Timings

from .clock import Clock
from .costs import MeasuredCosts
from .policies import Policy
from .traffic import Request
from .worker import SimulatedWorker

MAX_QUEUE_SECONDS = 30.0


@dataclass(eq=False)
class Outcome:
    """The outcome of a request; times in seconds since it was sent.

    Attributes:
        request: The request.
        first: When its first token came.
        end: When it had ended.
        refused: Whether it was refused.
        losses: Number of workers that it lost.
    """

    request: Request
    first: float | None = None
    end: float | None = None
    refused: bool = False
    losses: int = 0


@dataclass(eq=False)
class _Served:
    """A request that a router serves."""

    outcome: Outcome
    attempts: RunAttempts
    on_end: Callable[[], None]
    waiting: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)


class SimulatedRouter:
    """One router. Its event loop does one thing at a time.

    Attributes:
        catalog: The product's catalog.
        cpu_seconds: CPU time that it has used.
    """

    def __init__(
        self,
        clock: Clock,
        costs: MeasuredCosts,
        *,
        policy: Policy,
        workers: Mapping[WorkerId, SimulatedWorker],
        seed: int,
    ) -> None:
        """Starts without snapshots.

        Args:
            clock: The simulated time.
            costs: What requests cost.
            policy: How it chooses workers.
            workers: The processes of workers that are alive, which the fleet maintains.
            seed: Seed of its random choices.
        """
        self.catalog = Catalog([costs.model])
        self.cpu_seconds = 0.0
        self._clock, self._costs = clock, costs
        self._policy, self._processes = policy, workers
        # The ways of requests are drawn apart, so that policies draw the same.
        self._rng, self._ways = random.Random(seed), random.Random(seed)
        self._guard = OverloadGuard(MAX_QUEUE_SECONDS)
        self._free_at = 0.0
        # Ordered, so that simulations repeat themselves.
        self._running: dict[WorkerId, dict[_Served, None]] = {}
        self._unrouted: list[_Served] = []
        self._ids = itertools.count()
        clock.after(INTERVAL, self._compile)

    def take(self, request: Request, outcome: Outcome, on_end: Callable[[], None]) -> None:
        """Takes a request; `on_end` is called at its end."""
        run_request = RunRequest(
            request_id=str(next(self._ids)),
            model=self._costs.model,
            token_ids=range(request.prompt),
            options={  # type: ignore[arg-type]
                "max_new_tokens": request.new_tokens,
                "num_beams": 1,
                "prompt_logprobs": None,
                "eos_token_ids": (),
            },
        )
        served = _Served(outcome, RunAttempts(run_request), on_end)
        decision_seconds = self._costs.option_seconds * len(self._processes)
        seconds = self._costs.router_seconds + decision_seconds
        way_seconds = self._costs.way(self._ways.random())
        # What is not the router's CPU, such as the network, does not hold up other requests.
        elsewhere = max(0.0, way_seconds - self._costs.router_seconds)
        self._work(seconds, lambda: self._clock.after(elsewhere, lambda: self._route(served)))

    def watch(self, snapshot: Snapshot) -> None:
        """Takes a worker's snapshot."""
        seconds = self._costs.report_seconds * len(snapshot.graphs)
        self._work(seconds, lambda: self._update(snapshot))

    def lose(self, worker: WorkerId) -> None:
        """Notices that a worker has died; its runs continue elsewhere."""
        self.catalog.lose(worker)
        for served in self._running.pop(worker, {}):
            served.waiting.close()
            served.outcome.losses += 1
            served.attempts.record_loss(worker.name, Loss.LOST)
            if len(served.attempts.token_ids) == served.outcome.request.makes:
                self._end(served)
            else:
                self._route(served)

    def _update(self, snapshot: Snapshot) -> None:
        if snapshot.worker_id in self._processes:
            self.catalog.update(snapshot)
            unrouted, self._unrouted = self._unrouted, []
            for served in unrouted:
                self._route(served)

    def _work(self, seconds: float, action: Callable[[], None]) -> None:
        """Does something once the event loop has done what came before."""
        self.cpu_seconds += seconds
        self._free_at = max(self._clock(), self._free_at) + seconds
        self._clock.at(self._free_at, action)

    def _route(self, served: _Served) -> None:
        attempts = served.attempts
        views = [
            view for worker, view in self.catalog.views().items() if worker not in attempts.refusals
        ]
        if not views:
            if attempts.refusals:
                attempts.forget_refusals()
                if attempts.loss is None:
                    self._refuse(served)
                else:
                    self._clock.after(QUEUE_PAUSE, lambda: self._route(served))
            else:
                self._unrouted.append(served)
            return
        among = self._policy(served.outcome.request, views, self._rng)
        decision = decide(attempts.remaining(), among, self._clock())
        assert isinstance(decision, Decision)
        taken = decision.taken
        try:
            if attempts.loss is None and not attempts.refusals:
                self._guard.check("", taken, device_seconds=taken.device_seconds, seconds_left=None)
        except OverloadedError:
            self._refuse(served)
            return
        self._send(served, taken)

    def _send(self, served: _Served, taken: Option) -> None:
        attempts = served.attempts
        worker = self.catalog.active_workers()[taken.worker]
        assignment = self.catalog.assign(worker, attempts.remaining(), beams=taken.beams)
        served.waiting = contextlib.ExitStack()
        served.waiting.enter_context(self._guard.waiting("", taken))
        served.waiting.callback(self.catalog.arrived, assignment)
        process = self._processes.get(worker)
        self._running.setdefault(worker, {})[served] = None
        if process is None:
            # It has just died, which the router has yet to notice.
            return
        try:
            process.submit(self._run(served, attempts.next_request(taken), worker))
        except QueueFullError as error:
            self._running[worker].pop(served, None)
            served.waiting.close()
            attempts.record_refusal(worker, RelayedError(error.code, str(error)))
            self._route(served)

    def _run(self, served: _Served, request: RunRequest, worker: WorkerId) -> Run:
        def emit(event: object) -> None:
            # Within a turn of the worker, whose end lies ahead of what others see.
            self._clock.at(self._clock(), lambda: self._heard(served, worker, event))

        return Run(
            request_id=request.request_id,
            client=request.client,
            lane_beams=request.lane_beams,
            token_ids=request.token_ids,
            max_new_tokens=request.options["max_new_tokens"],
            eos_token_ids=(),
            num_beams=1,
            num_return_sequences=1,
            logprobs=None,
            options=SimpleNamespace(makes=served.outcome.request.makes),  # type: ignore[arg-type]
            emit=emit,
            timings=Timings(arrived=self._clock()),
            generated_token_ids=request.generated_token_ids,
            resumed=request.resumed,
            suspect=request.suspect,
        )

    def _heard(self, served: _Served, worker: WorkerId, event: object) -> None:
        if isinstance(event, NewTokens):
            seconds = 0.0 if served.outcome.first is None else self._costs.chunk_seconds
            self._work(seconds, lambda: self._relay(served, worker, event))
        elif isinstance(event, Ended):
            self._work(0.0, lambda: self._finish(served, worker))
        elif isinstance(event, Failed):
            raise event.error

    def _has(self, served: _Served, worker: WorkerId) -> bool:
        """Whether a worker still has a request."""
        return served in self._running.get(worker, {})

    def _relay(self, served: _Served, worker: WorkerId, event: NewTokens) -> None:
        if not self._has(served, worker):
            return
        served.attempts.record(event)
        served.waiting.close()
        if served.outcome.first is None:
            served.outcome.first = self._clock() - served.outcome.request.at

    def _finish(self, served: _Served, worker: WorkerId) -> None:
        if self._has(served, worker):
            self._running[worker].pop(served, None)
            self._end(served)

    def _end(self, served: _Served) -> None:
        served.waiting.close()
        served.outcome.end = self._clock() - served.outcome.request.at
        served.on_end()

    def _refuse(self, served: _Served) -> None:
        served.outcome.refused = True
        served.on_end()

    def _compile(self) -> None:
        wanted = compile_requests(self.catalog.views().values(), self._clock())
        active = self.catalog.active_workers()
        for name, signatures in wanted.items():
            if process := self._processes.get(active[name]):
                process.request_compile(signatures)
        self._clock.after(INTERVAL, self._compile)
