"""Measurements of services under load: servers run in turn, never two at a time.

An idle server would disturb the others and itself: it may still work on requests that their callers
have abandoned, and the machine may swap out its memory, which slows its next requests.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from common.processes import PeerError
from common.terminal import Tell

from .closed_loops import SETTLE_SECONDS, measured_capacity, warm_up
from .contestant import Contestant, LoadGenerator, Model
from .contestants import SHAPEROUTER, Entry
from .limits import CLASSES, REPEATS, class_name, class_requests
from .outcomes import End
from .result import Result, Run, State
from .traffic import Seed, open_loop

# Requests at a time when measuring the capacity.
RATE_SHARES = (0.25, 0.5, 0.8)
# Maximum seconds for requests without others: a contestant that compiles for each class may not get
# through all classes.
UNLOADED_SECONDS = 60.0
WARM_UP_SEED, CAPACITY_SEED, COLD_SEED, WARM_SEED = range(4)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a measurement.

    Attributes:
        model: The model.
        rates: Requests a second; None for shares of the capacity.
        seconds: Length of each open loop with a warm server, and of the measurement of capacity.
        cold_seconds: Length of the open loop with a cold server.
        warm_up_seconds: Length of the traffic before the first loop with a warm server.
        deadline: Maximum seconds of a request.
        seed: Seed of all traffic.
    """

    model: Model
    rates: Sequence[float] | None
    seconds: float
    cold_seconds: float
    warm_up_seconds: float
    deadline: float
    seed: int

    def seed_of(self, *purpose: float) -> Seed:
        """A seed for each purpose, so that measured requests are new to the server."""
        return [self.seed, *map(round, purpose)]


class Benchmark:
    """The measurements, in order."""

    def __init__(self, settings: Settings, result: Result, tell: Tell) -> None:
        """Prepares them.

        Args:
            settings: How to measure.
            result: The results are added to it.
            tell: Called with a line about the current activity.
        """
        self._settings = settings
        self._result = result
        self._tell = tell
        self._generator: LoadGenerator

    def run(self, entries: Sequence[Entry]) -> None:
        """Makes all measurements of these contestants."""
        with LoadGenerator(self._settings.deadline) as self._generator:
            self._result.rates = sorted(self._settings.rates or self._rates_of_capacity())
            for entry in entries:
                with self._noting(entry, "until it was warm"), self._start(entry) as server:
                    self._open_loop(server, State.COLD, self._middle_rate)
                    self._unloaded(server)
                    self._warm_up(server)
                    for rate in self._result.rates:
                        with self._noting(entry, f"warm, {rate:.2f}/s"):
                            self._open_loop(server, State.WARM, rate)

    def run_cold(self, entries: Sequence[Entry], seeds: Sequence[int]) -> None:
        """Measures cold starts: a new server for each seed, rate and contestant, in turn."""
        with LoadGenerator(self._settings.deadline) as self._generator:
            self._result.rates = sorted(self._settings.rates or self._rates_of_capacity())
            for seed in seeds:
                for rate in self._result.rates:
                    for entry in entries:
                        what = f"cold, seed {seed}, {rate:.2f}/s"
                        with self._noting(entry, what), self._start(entry) as server:
                            self._open_loop(server, State.COLD, rate, seed=seed)
                            if entry.name not in self._result.unloaded:
                                self._unloaded(server)

    @property
    def _middle_rate(self) -> float:
        return self._result.rates[len(self._result.rates) // 2]

    def _start(self, entry: Entry) -> Contestant:
        self._tell(f"starting {entry.label}")
        server = Contestant(entry, self._settings.model)
        self._result.versions[entry.name] = dict(server.versions)
        return server

    def _rates_of_capacity(self) -> list[float]:
        with self._start(SHAPEROUTER) as server:
            self._warm_up(server)
            self._tell("measuring the capacity")
            capacity = measured_capacity(
                server,
                self._generator,
                seed=self._settings.seed_of(CAPACITY_SEED),
                seconds=self._settings.seconds,
            )
        self._result.capacity = capacity
        return [share * capacity for share in RATE_SHARES]

    def _unloaded(self, server: Contestant) -> None:
        """Sends requests of each class to an idle server."""
        self._tell(f"{server.entry.label}: requests without others")
        requests = [request for shape in CLASSES for request in class_requests(*shape)]
        outcomes = self._generator.closed(server, requests, concurrency=1, seconds=UNLOADED_SECONDS)
        found = self._result.unloaded.setdefault(server.entry.name, {})
        for number, shape in enumerate(CLASSES):
            first = number * (1 + REPEATS)
            counted = outcomes[first + 1 : first + 1 + REPEATS]
            seconds = [each.total for each in counted if each.end is End.COMPLETED]
            if seconds:
                found[class_name(*shape)] = seconds

    def _warm_up(self, server: Contestant) -> None:
        self._tell(f"{server.entry.label}: warming up")
        warm_up(
            server,
            self._generator,
            seed=self._settings.seed_of(WARM_UP_SEED),
            seconds=self._settings.warm_up_seconds,
        )

    def _open_loop(
        self, server: Contestant, state: State, rate: float, *, seed: int | None = None
    ) -> None:
        settings = self._settings
        if seed is not None:
            settings = dataclasses.replace(settings, seed=seed)
        cold = state is State.COLD
        seconds = settings.cold_seconds if cold else settings.seconds
        purpose = [COLD_SEED] if cold else [WARM_SEED, 1e3 * rate]
        requests = open_loop(settings.seed_of(*purpose), rate=rate, seconds=seconds)
        self._tell(f"{server.entry.label}, {state}: {rate:.2f} requests/s for {seconds:.0f} s")
        before = server.counters()
        outcomes = self._generator.open(server, requests)
        settled = server.settle(SETTLE_SECONDS)
        after = server.counters()
        self._result.runs.append(
            Run.of(
                requests,
                outcomes,
                contestant=server.entry.name,
                state=state,
                rate=rate,
                seconds=seconds,
                deadline=settings.deadline,
                counters={name: value - before.get(name, 0) for name, value in after.items()},
                settled_seconds=settled,
                seed=settings.seed,
            )
        )

    @contextmanager
    def _noting(self, entry: Entry, what: str) -> Iterator[None]:
        """Records a contestant's failure, and continues without it."""
        try:
            yield
        except PeerError as error:
            self._result.failures.setdefault(f"{entry.label}: {what}", str(error))
