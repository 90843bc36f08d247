"""Traffic that waits for answers: it warms a server up, and finds how much it can do."""

from common.processes import PeerError

from .contestant import Contestant, LoadGenerator
from .outcomes import End, Outcome
from .traffic import Seed, any_time

CONCURRENCY = 8
# Seconds at most for a server to rest; until then, it would slow down whoever comes next.
SETTLE_SECONDS = 180.0
# Of the capacity's measurement, what goes before it.
RAMP_SHARE = 0.25
# More than any contestant answers.
MOST_A_SECOND = 100


def warm_up(server: Contestant, generator: LoadGenerator, *, seed: Seed, seconds: float) -> None:
    """Sends traffic for so long, and lets the server finish what it makes of it."""
    _closed_loop(server, generator, seed, seconds)
    server.settle(SETTLE_SECONDS)


def measured_capacity(
    server: Contestant, generator: LoadGenerator, *, seed: Seed, seconds: float
) -> float:
    """Requests a second that a server answers when so many are always under way.

    Raises:
        PeerError: It answers none.
    """
    ramp = RAMP_SHARE * seconds
    end = ramp + seconds
    answered = sum(
        outcome.end is End.COMPLETED and ramp < outcome.sent + outcome.total <= end
        for outcome in _closed_loop(server, generator, seed, end)
    )
    if not answered:
        raise PeerError(f"{server.entry.label} answered no request within {end:.0f} s")
    return answered / seconds


def _closed_loop(
    server: Contestant, generator: LoadGenerator, seed: Seed, seconds: float
) -> list[Outcome]:
    requests = any_time(seed, round(seconds * MOST_A_SECOND))
    return generator.closed(server, requests, concurrency=CONCURRENCY, seconds=seconds)
