"""All measurements, as raw seconds for the JSON file."""

import json
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common.files import write_figures

from .workloads import workloads


def _by_workload_and_contestant() -> dict[str, dict[str, Any]]:
    return defaultdict(dict)


@dataclass(kw_only=True)
class Result:
    """One run. "By workload" and "by contestant" are dictionaries of their names.

    Attributes:
        conditions: Machine and time of the measurement.
        rounds: Number of rounds.
        versions: Packages of each contestant, by contestant.
        failures: Reasons of failures, by "contestant: measurement".
        seconds: Times of the calls, one a round, by workload and contestant; None where the
            contestant did not take part in the round.
        device_seconds: Time of compiled graphs within it, for Shaperouter.
        bandwidth: Bytes a second that the machine reads, one a round.
        equal: Sequences of each first call that equal the reference's, by workload and contestant.
        first_calls: Time of the first call of each workload in a process that has run others.
        fresh: First calls of new processes, one a repeat, by contestant: seconds of the call, and
            the graphs traced and compiled for it.
        traces_in_rounds: Traces after the warm-up, by contestant.
        option_sets: Requests with different option sets and what they traced, by contestant.
    """

    conditions: dict[str, Any]
    rounds: int
    versions: dict[str, dict[str, str]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, dict[str, list[float | None]]] = field(
        default_factory=_by_workload_and_contestant
    )
    device_seconds: dict[str, dict[str, list[float | None]]] = field(
        default_factory=_by_workload_and_contestant
    )
    bandwidth: list[float] = field(default_factory=list)
    equal: dict[str, dict[str, int]] = field(default_factory=_by_workload_and_contestant)
    first_calls: dict[str, dict[str, float]] = field(default_factory=_by_workload_and_contestant)
    fresh: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    traces_in_rounds: dict[str, int] = field(default_factory=dict)
    option_sets: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        """Whether every part was measured."""
        rounds = all(self.seconds.get(workload.name) for workload in workloads())
        return bool(rounds and self.fresh and self.option_sets)

    def write(self, path: Path) -> None:
        """Writes the file."""
        write_figures(vars(self), path)

    @classmethod
    def read(cls, path: Path) -> "Result":
        """Reads the file."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))
