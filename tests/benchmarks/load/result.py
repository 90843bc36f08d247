"""All measurements, as raw seconds for the JSON file."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from common.files import write_figures
from common.tables import quantile

from .limits import Unloaded, limit
from .outcomes import End, Outcome
from .traffic import Request

NUMBER = re.compile(r"\d[\d.]*")


class State(StrEnum):
    """The traffic that a server has had before a run."""

    COLD = "cold"  # no traffic
    WARM = "warm"  # traffic of the same kind


@dataclass(frozen=True, kw_only=True)
class Run:
    """Requests of one schedule and their outcomes. Lists are in the order of the requests.

    Attributes:
        contestant: Name of the contestant.
        state: Its traffic before.
        rate: Requests a second, on average.
        seconds: Length of the schedule.
        deadline: Maximum seconds of a request.
        beams: Beam width of each request.
        prompts: Lengths of the prompts.
        new_tokens: Numbers of tokens to generate.
        sent: Times when they were sent, from the start.
        first: Seconds to its first tokens; None if it did not complete.
        total: Seconds to its end; None if it did not complete.
        ends: Number of requests by their end.
        reasons: Number of incomplete requests by reason, without numbers in it.
        max_late: Maximum seconds by which a request was sent too late.
        counters: The server's counters during the run.
        settled_seconds: Time until the server was idle afterwards.
        seed: Seed of the schedule.
        stalls: Seconds that each request waited for compilations, as the server reported.
        first_tight: Time of the first answer by graphs of the request's own shape, from the start;
            None without one.
    """

    contestant: str
    state: State
    rate: float
    seconds: float
    deadline: float
    beams: list[int]
    prompts: list[int]
    new_tokens: list[int]
    sent: list[float]
    first: list[float | None]
    total: list[float | None]
    ends: dict[str, int]
    reasons: dict[str, int]
    max_late: float
    counters: dict[str, float]
    settled_seconds: float
    seed: int = 0
    stalls: list[float] = field(default_factory=list)
    first_tight: float | None = None

    @classmethod
    def of(cls, requests: Sequence[Request], outcomes: Sequence[Outcome], **more: Any) -> "Run":
        """Combines requests with their outcomes."""
        completed = [outcome.end is End.COMPLETED for outcome in outcomes]
        return cls(
            beams=[request.beams for request in requests],
            prompts=[len(request.token_ids) for request in requests],
            new_tokens=[request.new_tokens for request in requests],
            sent=[outcome.sent for outcome in outcomes],
            first=[o.first if good else None for o, good in zip(outcomes, completed, strict=True)],
            total=[o.total if good else None for o, good in zip(outcomes, completed, strict=True)],
            ends=dict(Counter(outcome.end for outcome in outcomes)),
            reasons=dict(Counter(NUMBER.sub("…", o.reason) for o in outcomes if o.reason)),
            stalls=[outcome.timings.get("stall_seconds", 0.0) for outcome in outcomes],
            first_tight=min((o.sent + o.total for o in outcomes if o.tight), default=None),
            max_late=max((outcome.late for outcome in outcomes), default=0.0),
            **more,
        )

    @property
    def requests(self) -> int:
        """Number of requests sent."""
        return len(self.sent)

    def latency(self, share: float) -> float:
        """Seconds within which this share of all requests was answered."""
        return self._quantile(self.total, share)

    def first_latency(self, share: float) -> float:
        """Seconds within which this share of all requests had its first tokens."""
        return self._quantile(self.first, share)

    def useful(self, unloaded: Unloaded) -> int:
        """Number of requests answered within their limits."""
        shapes = zip(self.total, self.beams, self.prompts, self.new_tokens, strict=True)
        return sum(
            total is not None
            and total <= limit(unloaded, beams=beams, prompt=prompt, new_tokens=new_tokens)
            for total, beams, prompt, new_tokens in shapes
        )

    def goodput(self, unloaded: Unloaded) -> float:
        """Requests per second answered within their limits."""
        return self.useful(unloaded) / self.seconds

    def _quantile(self, seconds: Sequence[float | None], share: float) -> float:
        """Latencies of all requests; incomplete ones count with the whole deadline."""
        return quantile([self.deadline if each is None else each for each in seconds], share)


@dataclass(kw_only=True)
class Result:
    """One run of the benchmark.

    Attributes:
        conditions: Machine and time of the measurement.
        settings: Settings of the run.
        capacity: Requests a second that the service answers with 8 under way; None if the rates
            were given.
        rates: Requests a second of the open loops, ascending.
        versions: Packages of each contestant, by contestant.
        failures: Reasons of failures, by contestant and measurement.
        unloaded: Seconds of requests without others, by contestant and class.
        runs: The open loops, in the order they were run in.
    """

    conditions: dict[str, Any]
    settings: dict[str, Any]
    capacity: float | None = None
    rates: list[float] = field(default_factory=list)
    versions: dict[str, dict[str, str]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    unloaded: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)

    def find(
        self, contestant: str, state: State, rate: float | None = None, seed: int | None = None
    ) -> Run | None:
        """The run of a contestant in a state, at a rate and with a seed, or the only one."""
        for run in self.runs:
            same = (run.contestant, run.state) == (contestant, state)
            if same and rate in {None, run.rate} and seed in {None, run.seed}:
                return run
        return None

    def write(self, path: Path) -> None:
        """Writes the file."""
        write_figures(vars(self) | {"runs": [asdict(run) for run in self.runs]}, path)

    @classmethod
    def read(cls, path: Path) -> "Result":
        """Reads the file."""
        content = json.loads(path.read_text(encoding="utf-8"))
        runs = [Run(**run | {"state": State(run["state"])}) for run in content.pop("runs")]
        return cls(**content, runs=runs)
