"""A campaign: the service, callers, faults, and the result."""

from __future__ import annotations

import collections
import contextlib
import math
import signal
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from chaos.callers import CALLERS, Caller, Lines, attempt, hanging
from chaos.changes import Changes
from chaos.faults import STARVING, Fault, FaultKind
from chaos.growth import watched
from chaos.injection import Injection, lacking
from chaos.judge import Disturbance, Outcome, Rules, Verdict, judge, same
from chaos.leftovers import leftovers
from chaos.processes import End
from chaos.samples import POISONED, SAMPLES, SWITCHED, TIMEOUT, Sample
from chaos.schedule import Schedule
from chaos.stage import HANG_TIMEOUT, MARK, ROUTERS, Stage

# Seconds within which every request ends, and a little for a machine without a free core.
BOUND = TIMEOUT + 15.0
# Seconds after a disturbance in which a worker may still end because a device call took too long.
HANGS = 3.0 * HANG_TIMEOUT
# Exit code of a worker that ends itself, and the faults that make it do so.
EXIT_DEFECT = 70
HANGING = {
    FaultKind.FREEZE_WORKER,
    FaultKind.SLOW_WORKER,
    FaultKind.SLOW_FILES,
    FaultKind.POISON,
}
# Seconds that a process takes to end.
ENDS = 5.0
# Refusals are counted by this many first characters of their reasons.
_REASON = 60


@dataclass(frozen=True, kw_only=True)
class Defect:
    """Something that must not happen.

    Attributes:
        at: When, in seconds since the schedule began.
        what: What happened, with the request's name and id if it was one.
    """

    at: float
    what: str


@dataclass(frozen=True, kw_only=True)
class Result:
    """What came of a campaign.

    Attributes:
        schedule: Its faults.
        skipped: Numbers of faults that this machine does not allow, by kind.
        seconds: How long each part of the campaign took, by its name.
        verdicts: Numbers of attempts by the name of the request and the verdict.
        refusals: Numbers of refused attempts by their reason.
        restarts: Number of processes that were started after the first ones.
        slowest: Duration of the slowest attempt in seconds.
        defects: What must not happen, and did.
    """

    schedule: Schedule
    skipped: Mapping[FaultKind, int]
    seconds: Mapping[str, float]
    verdicts: Mapping[tuple[str, Verdict], int]
    refusals: Mapping[str, int]
    restarts: int
    slowest: float
    defects: tuple[Defect, ...]


class Campaign:
    """One run of a schedule against a fresh service."""

    def __init__(
        self, schedule: Schedule, work: Path, kept: Path, usage: Path, *, callers: int = CALLERS
    ) -> None:
        """Nothing runs yet.

        Args:
            schedule: The faults.
            work: An empty directory.
            kept: Where models and compiled graphs are kept from campaign to campaign.
            usage: Where to write samples of memory, threads and descriptors during the faults.
            callers: Number of callers.
        """
        self._schedule, self._work, self._kept, self._usage = schedule, work, kept, usage
        self._callers = callers
        lacks = lacking()
        able = [fault for fault in schedule.faults if fault.kind not in lacks]
        self._faults = able
        self._skipped = collections.Counter(each.kind for each in set(schedule.faults) - set(able))
        self._lock = threading.Lock()
        self._begun = time.monotonic()
        self._rules: dict[str, Rules] = {}
        self._disturbances: list[Disturbance] = []
        self._verdicts: collections.Counter[tuple[str, Verdict]] = collections.Counter()
        self._refusals: collections.Counter[str] = collections.Counter()
        self._defects: list[Defect] = []
        self._slowest = 0.0
        self._seconds: dict[str, float] = {}

    def clock(self) -> float:
        """Seconds since the schedule began; before it, since the campaign did."""
        return time.monotonic() - self._begun

    def run(self) -> Result:
        """Runs it to its end, which is no later than some minutes after the last fault."""
        with self._timed("start"):
            stage = Stage(self._work, self._kept, self._on_end)
        try:
            try:
                with self._timed("start"):
                    stage.wait_until_whole()
                self._changes = Changes(stage, self._note, self.clock)
                with self._timed("learn the right answers"):
                    self._learn(stage)
                stage.disk.keep()
                with self._timed("disturb"), watched(stage, self._usage):
                    self._disturb(stage)
                with self._timed("recover, and ask again"):
                    self._recover(stage)
            finally:
                starts = [len(each.lives) for each in (*stage.workers, *stage.routers)]
                with self._timed("stop"):
                    stage.close()
        except TimeoutError as error:
            self._defect(f"not all workers serve: {error}")
        for left in leftovers(MARK, [stage.temporary, stage.sockets]):
            self._defect(f"left behind: {left}")
        return Result(
            schedule=self._schedule,
            skipped=self._skipped,
            seconds=self._seconds,
            verdicts=self._verdicts,
            refusals=self._refusals,
            restarts=sum(starts) - len(starts),
            slowest=self._slowest,
            defects=tuple(self._defects),
        )

    @contextlib.contextmanager
    def _timed(self, part: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self._seconds[part] = self._seconds.get(part, 0.0) + time.monotonic() - began

    def _learn(self, stage: Stage) -> None:
        """Records the answers of the undisturbed service, on which all routers agree."""
        if alike := self._changes.learn():
            self._defect(f"revisions that answer alike, which proves nothing: {alike}")
        with contextlib.ExitStack() as stack:
            lines = Lines(stage, stack)
            for sample in SAMPLES:
                send = sample.whole or sample.send
                expected, *others = [send(lines.line(router)) for router in range(ROUTERS)]
                if not all(same(expected, other) for other in others):
                    self._defect(f"{sample.name}: routers disagree: {expected}, {others}")
                self._rules[sample.name] = Rules(
                    expected=expected, cancelled=sample.cancelled, deadline=sample.deadline
                )
        self._rules[POISONED.name] = Rules(expected=None, deadline=TIMEOUT, deadly=True)

    def _disturb(self, stage: Stage) -> None:
        """Plays the schedule, with callers."""
        stopping = threading.Event()
        self._begun = time.monotonic()
        callers = [
            Caller(stage, f"{self._schedule.seed}/{number}", stopping, self._note, self.clock)
            for number in range(self._callers)
        ]
        for caller in callers:
            caller.start()
        injection = Injection(
            stage,
            {
                FaultKind.POISON: lambda _: self._poison(stage),
                FaultKind.SWITCH_REVISION: lambda fault: self._changes.switch(fault.seed),
                FaultKind.VISIT_MODEL: lambda fault: self._changes.visit(fault.seed, fault.seconds),
            },
        )
        threads = [
            threading.Thread(target=self._inject, args=[injection, fault], daemon=True)
            for fault in self._faults
        ]
        for fault, thread in zip(self._faults, threads, strict=True):
            time.sleep(max(0.0, fault.at - self.clock()))
            thread.start()
        for thread in threads:
            thread.join()
        stopping.set()
        # A refused request is sent once more.
        for caller in hanging(callers, 2 * BOUND):
            self._defect(f"{caller.sending} of {caller.name} hangs")

    def _recover(self, stage: Stage) -> None:
        """Checks that the service is whole again and answers everything."""
        stage.wait_until_whole()
        self._disturbances.clear()
        with contextlib.ExitStack() as stack:
            lines = Lines(stage, stack)
            for sample in SAMPLES:
                for router in range(ROUTERS):
                    self._note(sample, attempt(sample, lines.line(router), self.clock))

    def _inject(self, injection: Injection, fault: Fault) -> None:
        began = self.clock()
        index = self._record(Disturbance(kind=fault.kind, began=began, ended=math.inf))
        try:
            injection.run(fault)
        # If a fault cannot be injected, the campaign proves nothing.
        except Exception as error:
            self._defect(f"{fault} was not possible: {error!r}")
        over = Disturbance(kind=fault.kind, began=began, ended=self.clock())
        with self._lock:
            self._disturbances[index] = over

    def _record(self, disturbance: Disturbance) -> int:
        with self._lock:
            self._disturbances.append(disturbance)
            return len(self._disturbances) - 1

    def _poison(self, stage: Stage) -> None:
        with contextlib.ExitStack() as stack:
            line = Lines(stage, stack).line(0)
            self._note(POISONED, attempt(POISONED, line, self.clock))

    def _note(self, sample: Sample, outcome: Outcome, rules: Rules | None = None) -> None:
        """Judges an attempt, by the sample's rules if no others are given."""
        with self._lock:
            known = list(self._disturbances)
        if sample.name == SWITCHED:
            rules = self._changes.rules(sample, outcome)
        judgement = judge(outcome, rules or self._rules[sample.name], known, bound=BOUND)
        with self._lock:
            self._verdicts[sample.name, judgement.verdict] += 1
            self._slowest = max(self._slowest, outcome.ended - outcome.began)
            if judgement.verdict is Verdict.REFUSED:
                self._refusals[judgement.why[:_REASON]] += 1
        if judgement.verdict is Verdict.DEFECT:
            self._defect(f"{sample.name} {outcome.request_id}: {judgement.why}")

    def _on_end(self, end: End) -> None:
        """Judges the end of a process that nobody ended, or that had to be killed at the end."""
        now = self.clock()

        def lately(kinds: Collection[FaultKind], seconds: float) -> bool:
            with self._lock:
                return any(
                    each.kind in kinds and each.began <= now <= each.ended + seconds
                    for each in self._disturbances
                )

        # A device call that hung ends its worker; libraries end a process that gets no memory; one
        # that cannot start says why, and ends. A signal may come before it has a handler.
        expected = (
            (end.code == EXIT_DEFECT and lately(HANGING, HANGS))
            or lately({FaultKind.BOUND_WORKER}, ENDS)
            or (not end.served and lately(STARVING, ENDS))
            or (not end.served and end.code == -signal.SIGTERM)
        )
        if end.code is None:
            self._defect(f"{end.name} did not end when it should")
        elif not expected:
            self._defect(f"{end.name} ended by itself with exit code {end.code}")

    def _defect(self, what: str) -> None:
        defect = Defect(at=round(self.clock(), 1), what=what)
        with self._lock:
            self._defects.append(defect)
        print(f"DEFECT at {defect.at} s: {what}", flush=True)
