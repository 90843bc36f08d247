"""Measurement of an overload: one schedule in three phases, and the memory of both processes."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

import psutil
from load.closed_loops import SETTLE_SECONDS, at_capacity, warm_up
from load.contestant import Contestant, LoadGenerator, Model
from load.contestants import SHAPEROUTER
from load.outcomes import Outcome
from load.traffic import Request, open_loop, plain_request

from common.terminal import Tell

WARM_UP_SEEDS, CAPACITY_SEED, BEFORE_SEED, OVERLOAD_SEED = ([0], [1]), [2], [3], [4]
NORMAL_SHARE = 0.8
# Slots of the lanes without beam search, of 2 beams and of 4: at capacity, all have a request.
SLOTS = 8 + 4 + 2
# Small requests, which measure the load without adding to it.
PROBE_SECONDS, PROBE_PROMPT, PROBE_TOKENS = 1.0, 16, 4
PROBE_CLIENT = "probe"
MEMORY_SECONDS = 1.0


class Phase(StrEnum):
    """The phase in which a request is sent."""

    BEFORE = "before"
    OVERLOAD = "overload"
    AFTER = "after"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a measurement.

    Attributes:
        model: The model.
        options: Options of `shaperouterd serve`.
        factor: Rate of the overload, as a multiple of the capacity.
        before_seconds: Length of the normal load before it.
        seconds: Length of the overload, and of the measurement of capacity.
        after_seconds: Length of the time with probes only.
        warm_up_seconds: Length of the traffic before all else.
        deadline: Maximum seconds of a request.
    """

    model: Model
    options: Sequence[str]
    factor: float
    before_seconds: float
    seconds: float
    after_seconds: float
    warm_up_seconds: float
    deadline: float

    @property
    def overload_end(self) -> float:
        """Seconds from the start."""
        return self.before_seconds + self.seconds

    def phase(self, at: float) -> Phase:
        """The phase at a time."""
        if at < self.before_seconds:
            return Phase.BEFORE
        return Phase.OVERLOAD if at < self.overload_end else Phase.AFTER


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Resident memory in bytes at a time in seconds after the start."""

    at: float
    router: int
    worker: int


@dataclass(kw_only=True)
class Measured:
    """The results.

    Attributes:
        capacity: Requests a second that the service answers with as many under way as it has slots.
        at_capacity: Outcomes at capacity.
        requests: The requests, in order.
        outcomes: Outcome of each request.
        memory: Memory over time.
        counters: The service's counters.
    """

    capacity: float
    at_capacity: list[tuple[Request, Outcome]]
    requests: list[Request]
    outcomes: list[Outcome]
    memory: list[Sample] = field(default_factory=list)
    counters: dict[str, float] = field(default_factory=dict)

    def figures(self) -> dict[str, Any]:
        """The content of the JSON file: columns of requests and outcomes."""
        pairs = zip(self.requests, self.outcomes, strict=True)
        return {
            "capacity": self.capacity,
            "at_capacity": [_row(*pair) for pair in self.at_capacity],
            "requests": [_row(*pair) for pair in pairs],
            "memory": [asdict(sample) for sample in self.memory],
            "counters": self.counters,
        }


def _row(request: Request, outcome: Outcome) -> dict[str, Any]:
    return {
        "at": request.at,
        "client": request.client,
        "beams": request.beams,
        "prompt": len(request.token_ids),
        "new_tokens": request.new_tokens,
        **asdict(outcome),
    }


def measure(settings: Settings, tell: Tell) -> Measured:
    """Runs the benchmark."""
    with LoadGenerator(settings.deadline) as generator:
        tell("starting the service")
        with Contestant(SHAPEROUTER, settings.model, options=settings.options) as server:
            # The second run uses graphs that the first one has justified.
            for number, seed in enumerate(WARM_UP_SEEDS, 1):
                tell(f"warming up, {number} of {len(WARM_UP_SEEDS)}")
                warm_up(server, generator, seed=seed, seconds=settings.warm_up_seconds)
            tell("measuring the capacity")
            answered = at_capacity(
                server, generator, seed=CAPACITY_SEED, seconds=settings.seconds, concurrency=SLOTS
            )
            server.settle(SETTLE_SECONDS)
            capacity = len(answered) / settings.seconds
            requests = _schedule(settings, capacity)
            tell(f"{len(requests)} requests: {capacity:.2f}/s can be answered")
            before = server.counters()
            with _memory_of(server) as memory:
                outcomes = generator.open(server, requests)
            after = server.counters()
    return Measured(
        capacity=capacity,
        at_capacity=answered,
        requests=requests,
        outcomes=outcomes,
        memory=memory,
        counters={name: value - before.get(name, 0) for name, value in after.items()},
    )


def _schedule(settings: Settings, capacity: float) -> list[Request]:
    """Normal load, overload from its end on, and probes throughout."""
    normal = open_loop(BEFORE_SEED, rate=NORMAL_SHARE * capacity, seconds=settings.before_seconds)
    overload = open_loop(OVERLOAD_SEED, rate=settings.factor * capacity, seconds=settings.seconds)
    probe = replace(
        plain_request(prompt=PROBE_PROMPT, new_tokens=PROBE_TOKENS), client=PROBE_CLIENT
    )
    probes = int((settings.overload_end + settings.after_seconds) / PROBE_SECONDS)
    requests = [
        *normal,
        *(replace(each, at=each.at + settings.before_seconds) for each in overload),
        *(replace(probe, at=number * PROBE_SECONDS) for number in range(probes)),
    ]
    return sorted(requests, key=lambda request: request.at)


@contextmanager
def _memory_of(server: Contestant) -> Iterator[list[Sample]]:
    """Samples the memory of router and worker inside of the context."""
    (router,) = psutil.Process(server.pid).children()
    (worker,) = router.children()
    samples: list[Sample] = []
    started, ended = time.monotonic(), threading.Event()

    def sample() -> None:
        # If a worker dies, sampling ends, and the report shows the failed requests.
        with suppress(psutil.NoSuchProcess):
            while not ended.wait(MEMORY_SECONDS):
                samples.append(
                    Sample(
                        at=time.monotonic() - started,
                        router=router.memory_info().rss,
                        worker=worker.memory_info().rss,
                    )
                )

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        ended.set()
        thread.join()
