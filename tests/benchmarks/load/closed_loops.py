"""Closed-loop traffic, which warms up a server and finds its capacity."""

from common.processes import PeerError

from .contestant import Contestant, LoadGenerator
from .outcomes import End, Outcome
from .traffic import Request, Seed, any_time

CONCURRENCY = 8
# Maximum seconds to wait until a server is idle. A busy one would slow down the next contestant.
SETTLE_SECONDS = 180.0
# Warm-up before the measurement of the capacity.
RAMP_SHARE = 0.25
# More requests than any contestant answers.
MOST_A_SECOND = 100


def warm_up(server: Contestant, generator: LoadGenerator, *, seed: Seed, seconds: float) -> None:
    """Sends traffic for this long, and lets the server finish its compilations."""
    _closed_loop(server, generator, seed, seconds)
    server.settle(SETTLE_SECONDS)


def at_capacity(
    server: Contestant,
    generator: LoadGenerator,
    *,
    seed: Seed,
    seconds: float,
    concurrency: int = CONCURRENCY,
) -> list[tuple[Request, Outcome]]:
    """Measures what a server answers in this time with this many requests always running.

    Raises:
        PeerError: It answers none.
    """
    ramp = RAMP_SHARE * seconds
    end = ramp + seconds
    answered = [
        (request, outcome)
        for request, outcome in _closed_loop(server, generator, seed, end, concurrency)
        if outcome.end is End.COMPLETED and ramp < outcome.sent + outcome.total <= end
    ]
    if not answered:
        raise PeerError(f"{server.entry.label} answered no request within {end:.0f} s")
    return answered


def measured_capacity(
    server: Contestant, generator: LoadGenerator, *, seed: Seed, seconds: float
) -> float:
    """Measures the requests per second that a server answers with this many always running.

    Raises:
        PeerError: It answers none.
    """
    return len(at_capacity(server, generator, seed=seed, seconds=seconds)) / seconds


def _closed_loop(
    server: Contestant,
    generator: LoadGenerator,
    seed: Seed,
    seconds: float,
    concurrency: int = CONCURRENCY,
) -> list[tuple[Request, Outcome]]:
    requests = any_time(seed, round(seconds * MOST_A_SECOND))
    outcomes = generator.closed(server, requests, concurrency=concurrency, seconds=seconds)
    return [(requests[outcome.number], outcome) for outcome in outcomes]
