"""A simulated fleet: routers, workers, traffic, failures and an autoscaler."""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

import numpy as np

from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.routing.snapshots import Snapshot, WorkerId

from .clock import Clock
from .costs import MeasuredCosts, all_graphs
from .policies import Policy, shaperouter
from .router import Outcome, SimulatedRouter
from .traffic import Request, Traffic
from .worker import SimulatedWorker

# Seconds until a router notices that a process has died: its connection breaks at once.
NOTICE_SECONDS = 0.01
# As Kubernetes' HorizontalPodAutoscaler by default.
SCALING_INTERVAL, TOLERANCE = 15.0, 0.1


@dataclass(frozen=True, kw_only=True)
class Autoscaler:
    """Kubernetes' rule for the number of workers.

    It scales up. Kubernetes scales down after five minutes, longer than our simulations last.

    Attributes:
        target: Requests, running and waiting, for each worker.
        most: Maximum number of workers.
    """

    target: float
    most: int

    def wanted(self, workers: int, requests: int) -> int:
        """The number of workers that the rule wants now."""
        ratio = requests / workers / self.target
        if abs(ratio - 1) <= TOLERANCE:
            return workers
        return min(self.most, max(1, math.ceil(workers * ratio)))


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A fleet and its traffic.

    Attributes:
        costs: Measured costs.
        workers: Number of workers at the start.
        traffic: The traffic.
        routers: Number of routers; callers choose one at random for each request.
        policy: How routers choose workers.
        ladders: Ladders of the workers; None for the default.
        is_warm: Whether workers begin with all graphs that the traffic may need.
        kills: Times at which a worker dies; its process starts again.
        autoscaler: Changes the number of workers; None if it is fixed.
        callers: If positive, so many callers send the requests one after another instead.
        warm_up: Seconds whose requests are not counted.
        seed: Seed of everything drawn.
    """

    costs: MeasuredCosts
    workers: int
    traffic: Traffic
    routers: int = 1
    policy: Policy = shaperouter
    ladders: Ladders | None = None
    is_warm: bool = True
    kills: Sequence[float] = ()
    autoscaler: Autoscaler | None = None
    callers: int = 0
    warm_up: float = 0.0
    seed: int = 1


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a simulation has shown.

    Attributes:
        setting: What was simulated.
        outcomes: Requests sent after the warm-up.
        graphs: Graphs that were compiled.
        device_share: Share of the time that devices computed.
        router_share: Share of the time that the busiest router computed.
        padding: Share of the prompts' computed tokens that were padding.
        workers_at: Number of warm workers, by time in seconds.
    """

    setting: Setting
    outcomes: Sequence[Outcome]
    graphs: int
    device_share: float
    router_share: float
    padding: float
    workers_at: Mapping[float, int] = field(repr=False)

    @property
    def ended(self) -> Sequence[Outcome]:
        """Requests that were answered."""
        return [outcome for outcome in self.outcomes if outcome.end is not None]

    def first_token(self, percentile: float) -> float:
        """A percentile of the seconds to the first token."""
        return float(np.percentile([outcome.first for outcome in self.ended], percentile))

    def whole(self, percentile: float) -> float:
        """A percentile of the seconds to the end."""
        return float(np.percentile([outcome.end for outcome in self.ended], percentile))

    @property
    def mean(self) -> float:
        """The mean of the seconds to the end."""
        return fmean(outcome.end for outcome in self.ended if outcome.end is not None)

    @property
    def rate(self) -> float:
        """Answered requests a second."""
        return len(self.ended) / (self.setting.traffic.seconds - self.setting.warm_up)

    @property
    def refused(self) -> int:
        """Number of refused requests."""
        return sum(outcome.refused for outcome in self.outcomes)

    @property
    def lost(self) -> int:
        """Number of requests that were neither answered nor refused."""
        return len(self.outcomes) - len(self.ended) - self.refused


def simulate(setting: Setting) -> Result:
    """Simulates a fleet until the traffic ends and its requests are answered."""
    return _Fleet(setting).run()


class _Fleet:
    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._clock = Clock()
        self._device = setting.costs.device()
        self._ladders = setting.ladders or setting.costs.ladders()
        self._rng = np.random.default_rng(setting.seed)
        self._processes: dict[WorkerId, SimulatedWorker] = {}
        self._all: list[SimulatedWorker] = []
        self._lives = itertools.count()
        self._names = itertools.count()
        self._starting = 0
        self._outcomes: list[Outcome] = []
        self._open = 0
        self._workers_at: dict[float, int] = {}
        self._routers = [
            SimulatedRouter(
                self._clock,
                setting.costs,
                policy=setting.policy,
                workers=self._processes,
                seed=setting.seed + index,
            )
            for index in range(setting.routers)
        ]

    def run(self) -> Result:
        setting, clock = self._setting, self._clock
        cached = all_graphs(self._ladders, setting.costs.model) if setting.is_warm else ()
        clock.at(0.0, lambda: self._start_all(cached))
        requests = setting.traffic.requests(setting.seed)
        # All routers have the snapshots of all workers by then.
        if setting.callers:
            for _ in range(setting.callers):
                clock.at(1.0, self._call_again)
        else:
            clock.at(1.0, lambda: self._next(requests))
        for at in setting.kills:
            clock.at(1.0 + at, self._kill)
        if setting.autoscaler:
            clock.at(1.0 + SCALING_INTERVAL, self._scale)
        until = 1.0 + setting.traffic.seconds
        clock.run(until)
        shares = self._shares()
        # Requests that are under way may end.
        while self._open and not setting.callers and until < 1.0 + 3 * setting.traffic.seconds:
            until += 1.0
            clock.run(until)
        counted = [
            outcome
            for outcome in self._outcomes
            if outcome.request.at >= 1.0 + setting.warm_up and self._is_counted(outcome)
        ]
        return Result(
            setting=setting,
            outcomes=counted,
            graphs=sum(graph.compiles for worker in self._all for graph in worker.graphs.graphs()),
            device_share=shares[0],
            router_share=shares[1],
            padding=self._padding(counted),
            workers_at=self._workers_at,
        )

    def _is_counted(self, outcome: Outcome) -> bool:
        # Closed loops are cut off while requests are under way.
        return not self._setting.callers or outcome.end is not None

    def _shares(self) -> tuple[float, float]:
        seconds = self._setting.traffic.seconds
        device = sum(worker.lane.device_seconds for worker in self._all)
        router = max(router.cpu_seconds for router in self._routers)
        return device / seconds / max(1, len(self._processes)), router / (seconds + 1.0)

    def _padding(self, outcomes: Iterable[Outcome]) -> float:
        padding = sum(worker.lane.reader.prefill_padding_tokens for worker in self._all)
        read = sum(outcome.request.prompt for outcome in self._outcomes)
        return padding / max(1, padding + read)

    # --- Workers -----------------------------------------------------------------------------

    def _start_all(self, cached: Sequence[Signature]) -> None:
        for _ in range(self._setting.workers):
            self._start(f"worker-{next(self._names)}", cached)

    def _start(self, name: str, cached: Sequence[Signature]) -> None:
        worker = WorkerId(name, str(next(self._lives)))
        self._processes[worker] = process = SimulatedWorker(
            *worker,
            self._clock,
            self._setting.costs,
            device=self._device,
            ladders=self._ladders,
            cached=cached,
            on_snapshot=self._publish,
        )
        self._all.append(process)
        process.begin()
        self._workers_at[self._clock()] = len(self._processes)

    def _publish(self, snapshot: Snapshot) -> None:
        for router in self._routers:
            router.watch(snapshot)

    def _kill(self) -> None:
        if not self._processes:
            return
        worker = list(self._processes)[int(self._rng.integers(len(self._processes)))]
        cached = self._end(worker)
        # What it had compiled is in the cache.
        self._clock.after(
            self._setting.costs.start_seconds, lambda: self._start(worker.name, cached)
        )

    def _end(self, worker: WorkerId) -> Sequence[Signature]:
        """Ends a process; returns the graphs that it had."""
        process = self._processes.pop(worker)
        process.die()
        for router in self._routers:
            self._clock.after(NOTICE_SECONDS, lambda router=router: router.lose(worker))
        self._workers_at[self._clock()] = len(self._processes)
        return process.ready

    def _scale(self) -> None:
        autoscaler = self._setting.autoscaler
        assert autoscaler
        present = len(self._processes)
        wanted = autoscaler.wanted(present, self._open)
        for _ in range(wanted - present - self._starting):
            self._starting += 1
            self._clock.after(self._setting.costs.start_seconds, self._scaled_up)
        self._clock.after(SCALING_INTERVAL, self._scale)

    def _scaled_up(self) -> None:
        self._starting -= 1
        known = next(iter(self._processes.values()), None)
        self._start(f"worker-{next(self._names)}", known.ready if known else ())

    # --- Requests ----------------------------------------------------------------------------

    def _next(self, requests: Iterable[Request]) -> None:
        requests = iter(requests)
        request = next(requests, None)
        if request is None:
            return
        self._clock.at(1.0 + request.at, lambda: self._send(request))
        self._clock.at(1.0 + request.at, lambda: self._next(requests))

    def _call_again(self) -> None:
        self._send(self._setting.traffic.one(self._rng), self._call_again)

    def _send(self, request: Request, then: object = None) -> None:
        sent = Request(**{**request.__dict__, "at": self._clock()})
        outcome = Outcome(sent)
        self._outcomes.append(outcome)
        self._open += 1

        def end() -> None:
            self._open -= 1
            if callable(then):
                then()

        router = self._routers[int(self._rng.integers(len(self._routers)))]
        router.take(sent, outcome, end)
