"""The measurements. One server is called at a time; those that have been started wait."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from common.processes import PeerError
from common.terminal import Tell

from .contestant import Contestant, LoadGenerator, Model
from .contestants import SHAPEROUTER, Entry
from .limits import CLASSES, REPEATS, class_name, class_requests
from .outcomes import End, Outcome
from .result import Result, Run, State
from .traffic import any_time, open_loop

CONCURRENCY = 8
# Of the capacity.
RATE_SHARES = (0.25, 0.5, 0.8)
# Seconds at most for requests without others: who compiles for each class may not get to all.
UNLOADED_SECONDS = 60.0
# Seconds at most for a server to rest; until then, it would slow down whoever comes next.
SETTLE_SECONDS = 180.0
RAMP_SHARE = 0.25
# More than any contestant answers in a closed loop.
MOST_A_SECOND = 100
WARM_UP_SEED, CAPACITY_SEED, COLD_SEED, WARM_SEED = range(4)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How it is measured.

    Attributes:
        model: What is served.
        rates: Requests a second; None for shares of the capacity.
        seconds: Of each open loop with a warm server, and of the capacity's measurement.
        cold_seconds: Of the open loop with a cold server.
        warm_up_seconds: Of traffic before the first loop with a warm server.
        deadline: Seconds that a request may take.
        seed: Of all traffic.
    """

    model: Model
    rates: Sequence[float] | None
    seconds: float
    cold_seconds: float
    warm_up_seconds: float
    deadline: float
    seed: int

    def seed_of(self, purpose: int) -> int:
        """Another seed for each purpose: warm-up and measurement must not be the same requests."""
        return 10 * self.seed + purpose


class Benchmark:
    """The measurements, in the order they are made."""

    def __init__(self, settings: Settings, result: Result, tell: Tell) -> None:
        """Prepares them.

        Args:
            settings: How to measure.
            result: Takes what is found.
            tell: Takes a line on what is being done.
        """
        self._settings = settings
        self._result = result
        self._tell = tell
        self._generator: LoadGenerator

    def run(self, entries: Sequence[Entry]) -> None:
        """Measures everything of these contestants."""
        with ExitStack() as stack:
            self._generator = stack.enter_context(LoadGenerator(self._settings.deadline))
            rates = self._settings.rates or [
                share * self._measured_capacity() for share in RATE_SHARES
            ]
            self._result.rates = sorted(rates)
            servers = []
            for entry in entries:
                with self._noting(entry, "cold"):
                    server = stack.enter_context(self._start(entry))
                    self._open_loop(server, State.COLD, self._middle_rate)
                    servers.append(server)
                with self._noting(entry, "warm-up"):
                    self._unloaded(server)
                    self._warm_up(server)
            for number, rate in enumerate(self._result.rates):
                # Everybody comes after everybody else some time.
                first = number % max(1, len(servers))
                for server in servers[first:] + servers[:first]:
                    with self._noting(server.entry, f"warm, {rate:.2f}/s"):
                        self._open_loop(server, State.WARM, rate)

    @property
    def _middle_rate(self) -> float:
        return self._result.rates[len(self._result.rates) // 2]

    def _start(self, entry: Entry) -> Contestant:
        self._tell(f"starting {entry.label}")
        server = Contestant(entry, self._settings.model)
        self._result.versions[entry.name] = dict(server.versions)
        return server

    def _measured_capacity(self) -> float:
        """Requests a second that the service answers when so many are always under way."""
        with self._start(SHAPEROUTER) as server:
            self._warm_up(server)
            self._tell("measuring the capacity")
            ramp = RAMP_SHARE * self._settings.seconds
            end = ramp + self._settings.seconds
            outcomes = self._closed_loop(server, CAPACITY_SEED, end)
        answered = sum(
            outcome.end is End.COMPLETED and ramp < outcome.sent + outcome.total <= end
            for outcome in outcomes
        )
        if not answered:
            raise PeerError(f"{SHAPEROUTER.label} answered no request within {end:.0f} s")
        self._result.capacity = answered / self._settings.seconds
        return self._result.capacity

    def _unloaded(self, server: Contestant) -> None:
        """Sends requests of each class without others."""
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
        """Sends traffic of the same kind, and lets the server finish what it makes of it."""
        self._tell(f"{server.entry.label}: warming up")
        self._closed_loop(server, WARM_UP_SEED, self._settings.warm_up_seconds)
        self._tell(f"{server.entry.label}: waiting until it rests")
        server.settle(SETTLE_SECONDS)

    def _closed_loop(self, server: Contestant, purpose: int, seconds: float) -> list[Outcome]:
        requests = any_time(self._settings.seed_of(purpose), round(seconds * MOST_A_SECOND))
        return self._generator.closed(server, requests, concurrency=CONCURRENCY, seconds=seconds)

    def _open_loop(self, server: Contestant, state: State, rate: float) -> None:
        settings = self._settings
        cold = state is State.COLD
        seconds = settings.cold_seconds if cold else settings.seconds
        purpose = COLD_SEED if cold else WARM_SEED
        requests = open_loop(settings.seed_of(purpose), rate=rate, seconds=seconds)
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
            )
        )

    @contextmanager
    def _noting(self, entry: Entry, what: str) -> Iterator[None]:
        """Notes a failure of a contestant, and goes on without it."""
        try:
            yield
        except PeerError as error:
            self._result.failures.setdefault(f"{entry.label}: {what}", str(error))
