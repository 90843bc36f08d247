"""Schedules of faults: drawn from a seed, shortened, and kept in files."""

from __future__ import annotations

import json
import random
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace

from chaos.faults import ALL, LASTING, Fault, FaultKind

# How often each kind comes, relative to the others. A kind that ends many workers, and so costs
# much of the campaign's time, is rare.
_WEIGHTS = dict.fromkeys(FaultKind, 4) | {
    FaultKind.KILL_WORKER: 12,
    FaultKind.FREEZE_WORKER: 8,
    FaultKind.CUT_WORKER: 8,
    FaultKind.KILL_ROUTER: 6,
    FaultKind.EXHAUST_WORKER: 3,
    FaultKind.SLOW_FILES: 2,
    FaultKind.POISON: 1,
}

# Seconds. Some lasting faults pass unnoticed; others outlast three heartbeats.
_SHORTEST, _LONGEST = 0.5, 12.0

# Maximum seconds between two faults of a shortened schedule.
GAP = 2.0


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The faults of a campaign, in order.

    Attributes:
        seed: What they and the traffic are drawn from.
        faults: The faults, by the time when they begin.
    """

    seed: int
    faults: tuple[Fault, ...]

    @classmethod
    def draw(
        cls, seed: int, *, count: int, every: float, kinds: Collection[FaultKind] = ALL
    ) -> Schedule:
        """Draws a schedule.

        Args:
            seed: The same one gives the same schedule.
            count: Number of faults.
            every: Mean time between two faults, in seconds.
            kinds: The kinds to draw from.
        """
        source = random.Random(seed)
        weights = {kind: weight for kind, weight in _WEIGHTS.items() if kind in kinds}
        drawn = source.choices(list(weights), list(weights.values()), k=count)
        at, faults = 0.0, []
        for kind in drawn:
            at += source.uniform(0.5 * every, 1.5 * every)
            seconds = source.uniform(_SHORTEST, _LONGEST)
            faults.append(
                Fault(
                    kind=kind,
                    at=round(at, 2),
                    target=source.randrange(12),
                    seconds=round(seconds, 2) if kind in LASTING else 0.0,
                    seed=source.randrange(2**32),
                )
            )
        return cls(seed=seed, faults=tuple(faults))

    @property
    def seconds(self) -> float:
        """Time from its beginning to the end of its last fault."""
        return max((fault.at + fault.seconds for fault in self.faults), default=0.0)

    def keeping(self, faults: Sequence[Fault]) -> Schedule:
        """A schedule of some of the faults only, with shorter pauses where others were."""
        kept: list[Fault] = []
        clock = before = 0.0
        for fault in faults:
            clock += min(GAP, fault.at - before)
            before = fault.at
            kept.append(replace(fault, at=round(clock, 2)))
        return replace(self, faults=tuple(kept))

    def to_json(self) -> str:
        """Content of a file for `from_json`."""
        faults = [asdict(fault) for fault in self.faults]
        return json.dumps({"seed": self.seed, "faults": faults}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Schedule:
        """Reads what `to_json` wrote."""
        content = json.loads(text)
        faults = (each | {"kind": FaultKind(each["kind"])} for each in content["faults"])
        return cls(seed=content["seed"], faults=tuple(Fault(**each) for each in faults))
