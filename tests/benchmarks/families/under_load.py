"""Encoder-decoders under load: services in turn, each called by closed loops over gRPC.

Sources have 8 to 96 tokens. Greedy requests end after 8 to 64 tokens; CTranslate2 ends each at its
own length. It has no such way for beam search, so that all beam searches make 32 tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from generation.workloads import BEAMS, NEW_TOKENS
from load.closed_loops import RAMP_SHARE, SETTLE_SECONDS
from load.contestant import Contestant, LoadGenerator
from load.contestants import CTRANSLATE2, SHAPEROUTER, Entry
from load.outcomes import End
from load.traffic import Request

from common.conditions import conditions
from common.processes import PeerError
from common.tables import quantile
from common.terminal import Tell

from .checkpoint import Shape
from .formats import Format, prepare

CALLERS = (8, 16)
SECONDS, WARM_UP_SECONDS, DEADLINE = 10.0, 12.0, 120.0
SHORTEST_SOURCE, LONGEST_SOURCE = 8, 96
FEWEST_NEW_TOKENS, MOST_NEW_TOKENS = 8, 64
# More requests than any server answers.
MOST_A_SECOND = 100
WARM_UP_SEED, SEED = 1, 2
OURS = SHAPEROUTER
THEIRS = Entry(
    name="ctranslate2-translator",
    label=CTRANSLATE2.label,
    environment=CTRANSLATE2.environment,
    module="families.server_ctranslate2",
    converted=True,
)
ENTRIES = (OURS, THEIRS)
# Names of the options of requests.
KINDS = {"greedy": 1, f"{BEAMS} beams": BEAMS}


@dataclass(frozen=True, kw_only=True)
class Level:
    """What a server did with a number of callers.

    Attributes:
        callers: Number of callers. Each sends its next request when its last one is answered.
        tokens_per_second: New tokens of the requests that were answered.
        median: Median seconds of a request.
        p99: 99th percentile of the seconds.
        answered: Number of requests that were answered.
    """

    callers: int
    tokens_per_second: float
    median: float
    p99: float
    answered: int


@dataclass(kw_only=True)
class Loaded:
    """The figures of a model under load.

    Attributes:
        conditions: Machine and time of the measurement.
        levels: By kind of request and contestant, in the order of `CALLERS`.
        failures: Reasons of failures, by contestant.
    """

    conditions: dict[str, Any]
    levels: dict[str, dict[str, list[Level]]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)


def measure(shape: Shape, tell: Tell) -> Loaded:
    """Calls the services of a model in turn."""
    found = Loaded(conditions=conditions())
    prepare(shape, Format.HUGGING_FACE)
    prepare(shape, Format.CTRANSLATE2)
    with LoadGenerator(DEADLINE) as generator:
        for entry in ENTRIES:
            label = f"{shape.label} under load: {entry.label}"
            tell(f"{label}, starting")
            try:
                with Contestant(entry, shape) as server:
                    for kind, beams in KINDS.items():
                        traffic = _Traffic(shape=shape, beams=beams)
                        tell(f"{label}, {kind}, warming up")
                        _warm_up(server, generator, traffic)
                        levels = found.levels.setdefault(kind, {}).setdefault(entry.label, [])
                        for callers in CALLERS:
                            tell(f"{label}, {kind}, {callers} callers")
                            levels.append(_level(server, generator, traffic, callers))
            except PeerError as error:
                found.failures[entry.label] = str(error)
    return found


def at_same_p99(ours: Sequence[Level], theirs: Sequence[Level]) -> float:
    """Their tokens per second divided by ours, at the 99th percentile of their fastest level.

    Ours is interpolated between levels, and not extrapolated. If all of ours are slower, the
    percentile is the shortest of ours, which favours us.
    """
    best = max(theirs, key=lambda level: level.tokens_per_second)
    known = sorted(ours, key=lambda level: level.p99)
    speed = np.interp(
        best.p99,
        [level.p99 for level in known],
        [level.tokens_per_second for level in known],
    )
    return float(best.tokens_per_second / speed)


@dataclass(frozen=True, kw_only=True)
class _Traffic:
    """Requests of a kind, drawn from a seed."""

    shape: Shape
    beams: int

    def draw(self, seed: int, seconds: float) -> list[Request]:
        """Draws more requests than are answered in this time."""
        rng = np.random.default_rng(seed)
        return [
            Request(
                at=0.0,
                client=f"client-{number % max(CALLERS)}",
                token_ids=self.shape.draw_prompts(
                    rng, 1, int(rng.integers(SHORTEST_SOURCE, LONGEST_SOURCE + 1))
                )[0],
                options={"max_new_tokens": self._new_tokens(rng), "num_beams": self.beams},
            )
            for number in range(round(seconds * MOST_A_SECOND))
        ]

    def _new_tokens(self, rng: np.random.Generator) -> int:
        if self.beams > 1:
            return NEW_TOKENS
        return int(rng.integers(FEWEST_NEW_TOKENS, MOST_NEW_TOKENS + 1))


def _warm_up(server: Contestant, generator: LoadGenerator, traffic: _Traffic) -> None:
    """Sends requests as each level does, and waits until the server has finished compiling.

    Graphs that one pass made worth compiling are ready for the next pass, which shows further ones.
    """
    requests = traffic.draw(WARM_UP_SEED, WARM_UP_SECONDS)
    for callers in reversed(CALLERS):
        generator.closed(server, requests, concurrency=callers, seconds=WARM_UP_SECONDS)
        server.settle(SETTLE_SECONDS)


def _level(server: Contestant, generator: LoadGenerator, traffic: _Traffic, callers: int) -> Level:
    ramp = RAMP_SHARE * SECONDS
    end = ramp + SECONDS
    requests = traffic.draw(SEED, end)
    outcomes = generator.closed(server, requests, concurrency=callers, seconds=end)
    if failed := next((each for each in outcomes if each.end is not End.COMPLETED), None):
        raise PeerError(f"a request {failed.end}: {failed.reason}")
    answered = [each for each in outcomes if ramp < each.sent + each.total <= end]
    if not answered:
        raise PeerError(f"answered no request within {SECONDS:.0f} s")
    seconds = [outcome.total for outcome in answered]
    tokens = sum(requests[outcome.number].new_tokens for outcome in answered)
    return Level(
        callers=callers,
        tokens_per_second=tokens / SECONDS,
        median=quantile(seconds, 0.5),
        p99=quantile(seconds, 0.99),
        answered=len(answered),
    )
