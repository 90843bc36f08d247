"""Models that come, go and change their revision while callers use them."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from chaos.callers import RETRY, Lines, Report, attempt
from chaos.judge import Outcome, Rules
from chaos.processes import Life
from chaos.revisions import SETTLING, Revisions, forgotten
from chaos.samples import Sample, answer_of
from chaos.stage import REVISIONS, ROUTERS, SWITCHING, VISITING, Stage

# Seconds within which a model is loaded or given up: a load fails whenever a worker dies meanwhile.
_PATIENCE = 60.0
# Codes of refusals after which the model is as it was: a worker could not load it, or another call
# came between.
_UNCHANGED = frozenset({"FAILED_PRECONDITION", "ABORTED"})

NOT_FOUND = "NOT_FOUND"

LOAD = Rules(expected=True, deadline=_PATIENCE, refusable=_UNCHANGED)
UNLOAD = Rules(expected=True, deadline=_PATIENCE, refusable=_UNCHANGED | {NOT_FOUND})


class Changes:
    """Changes models, and knows what requests to them may be answered with."""

    def __init__(self, stage: Stage, report: Report, clock: Callable[[], float]) -> None:
        """Changes nothing yet.

        Args:
            stage: The service.
            report: Called with each attempt.
            clock: The campaign's clock.
        """
        self._stage, self._report, self._clock = stage, report, clock
        self._switching, self._visiting = threading.Lock(), threading.Lock()
        # The newest load, and whatever reads or changes what is known of revisions.
        self._lock = threading.Lock()
        self._revisions = Revisions({}, present="", given="")

    def learn(self) -> list[str]:
        """Records what each revision answers; returns those that answer as another one does."""
        answers: dict[str, Any] = {}
        with self._lines() as lines:
            for location in REVISIONS:
                line = lines.line(0)
                line.client.load_model(SWITCHING, location)
                answers[location] = answer_of(SWITCHING, line)
        self._revisions = Revisions(answers, present=REVISIONS[-1], given=REVISIONS[0])
        return [each for each in REVISIONS if list(answers.values()).count(answers[each]) > 1]

    def rules(self, sample: Sample, outcome: Outcome) -> Rules:
        """What is right for a request to a model whose revisions are switched."""
        with self._lock:
            self._revisions.restarted(self._lives())
            first, *others = self._revisions.right(outcome.began, outcome.ended)
        return Rules(
            expected=first, others=others, cancelled=sample.cancelled, deadline=sample.deadline
        )

    def _lives(self) -> list[list[Life]]:
        """The starts of each process, on the campaign's clock."""
        zero = time.monotonic() - self._clock()
        return [
            [Life(began=each.began - zero, served=each.served - zero) for each in process.lives]
            for process in (*self._stage.workers, *self._stage.routers)
        ]

    def switch(self, seed: int) -> None:
        """Loads a revision behind the name that callers use."""
        with self._switching, self._lines() as lines:
            self._load(lines, SWITCHING, random.Random(seed).choice(REVISIONS), known=True)

    def visit(self, seed: int, seconds: float) -> None:
        """Loads a model under a further name, uses it for some seconds, and unloads it."""
        with self._visiting, self._lines() as lines:
            location = random.Random(seed).choice(REVISIONS)
            if self._load(lines, VISITING, location, known=False):
                loaded_at = self._clock()
                right = Rules(expected=self._revisions.answers[location])
                settling = dataclasses.replace(right, refusable={NOT_FOUND})
                if self._until(lines, _is_answered, settling, loaded_at):
                    self._use(lines, right, seconds)
            if self._unload(lines):
                gone = Rules(expected=self._revisions.answers[location], refusable={NOT_FOUND})
                self._until(lines, _is_not_found, gone)

    def _load(self, lines: Lines, name: str, location: str, *, known: bool) -> bool:
        """Loads a model, again and again; false if it is given up."""

        def send(line: Any) -> bool:
            line.client.load_model(name, location, timeout=_PATIENCE)
            return True

        def sent(outcome: Outcome | None) -> None:
            if not known:
                return
            with self._lock:
                self._revisions.restarted(self._lives())
                if outcome is None:
                    self._revisions.begin(location, self._clock())
                elif outcome.refusal is None:
                    self._revisions.loaded(outcome.ended)
                elif outcome.refusal.code in _UNCHANGED:
                    self._revisions.refused(outcome.ended)

        sample = Sample(name=f"load {name}", weight=0, send=send)
        return self._tried(lines, sample, LOAD, sent)

    def _unload(self, lines: Lines) -> bool:
        def send(line: Any) -> bool:
            line.client.unload_model(VISITING, timeout=_PATIENCE)
            return True

        sample = Sample(name=f"unload {VISITING}", weight=0, send=send)
        return self._tried(lines, sample, UNLOAD)

    def _tried(
        self,
        lines: Lines,
        sample: Sample,
        rules: Rules,
        sent: Callable[[Outcome | None], None] = lambda _: None,
    ) -> bool:
        """Sends a request to one router after the other until it succeeds, or for some time.

        Calls `sent` before each attempt, and with what has come of it.
        """
        give_up_at = self._clock() + _PATIENCE
        routers = itertools.cycle(range(ROUTERS))
        while self._clock() < give_up_at:
            sent(None)
            outcome = attempt(sample, lines.line(next(routers)), self._clock)
            sent(outcome)
            self._report(sample, outcome, rules)
            if outcome.refusal is None or _is_not_found(outcome):
                return True
            # As clients do, which the refusal tells when to try again.
            time.sleep(outcome.refusal.retry_after or RETRY)
        return False

    def _use(self, lines: Lines, rules: Rules, seconds: float) -> None:
        """Sends requests to the visiting model through all routers."""
        ends_at = self._clock() + seconds
        while self._clock() < ends_at:
            for router in range(ROUTERS):
                self._ask(lines, router, rules)

    def _until(
        self,
        lines: Lines,
        done: Callable[[Outcome], bool],
        rules: Rules,
        loaded_at: float | None = None,
    ) -> bool:
        """Sends requests to the visiting model until each router has answered as it should.

        Returns false, and reports a defect, if a router answers otherwise for too long. A router
        that does not answer at all proves nothing. Neither does a service whose processes have all
        been restarted since the load: it may have forgotten the model.
        """
        for router in range(ROUTERS):
            give_up_at = self._clock() + SETTLING
            while not done(outcome := self._ask(lines, router, rules)):
                if self._clock() > give_up_at:
                    is_known = loaded_at is None or forgotten(self._lives(), loaded_at) is None
                    if outcome.refusal is None or (_is_not_found(outcome) and is_known):
                        strict = dataclasses.replace(rules, deadly=True, refusable=())
                        self._report(_VISITOR, outcome, strict)
                    return False
                time.sleep(RETRY)
        return True

    @contextlib.contextmanager
    def _lines(self) -> Iterator[Lines]:
        with contextlib.ExitStack() as stack:
            yield Lines(self._stage, stack)

    def _ask(self, lines: Lines, router: int, rules: Rules) -> Outcome:
        outcome = attempt(_VISITOR, lines.line(router), self._clock)
        if _is_not_found(outcome) and NOT_FOUND not in rules.refusable:
            # A router that has just started learns of the model when it has found a worker.
            assert outcome.refusal is not None
            refusal = dataclasses.replace(outcome.refusal, connection=True)
            outcome = dataclasses.replace(outcome, refusal=refusal)
        self._report(_VISITOR, outcome, rules)
        return outcome


_VISITOR = Sample(name=VISITING, weight=0, send=lambda line: answer_of(VISITING, line))


def _is_answered(outcome: Outcome) -> bool:
    return outcome.refusal is None


def _is_not_found(outcome: Outcome) -> bool:
    return outcome.refusal is not None and outcome.refusal.code == NOT_FOUND
