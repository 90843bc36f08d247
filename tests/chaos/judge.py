"""Judges what a caller saw of a request: right, refused with a reason, or a defect."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from chaos.faults import NEAR_CALLERS, FaultKind

# Tolerance for arrays of floats, whose last bits depend on the shape of a graph. Tokens have no
# tolerance.
_TOLERANCE = 1e-4

# Seconds after a fault near callers in which they may still meet it: a router starts and finds its
# workers; a silent connection is given up.
AFTERMATH = 40.0

# Seconds within which a router that has file descriptors again knows the newest tokens.
RELOADED = 5.0


class Verdict(StrEnum):
    """What an outcome is."""

    RIGHT = "right"
    REFUSED = "refused"
    DEFECT = "defect"


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """An error, as its door shows it.

    Attributes:
        code: Name of the gRPC status, or of the status that the HTTP status stands for.
        reason: The message.
        retry_after: Seconds after which to try again; None if the service did not say.
        connection: Whether the caller's own side reports it, because the connection broke.
    """

    code: str
    reason: str
    retry_after: float | None = None
    connection: bool = False


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a caller saw of one attempt of a request.

    Attributes:
        sample: Name of the request.
        began: When it was sent, in seconds of the campaign's clock.
        ended: When its answer or its error came.
        answer: The whole answer; None if there was an error, or the caller cancelled.
        part: What came before the error or the cancellation, of a streamed request.
        refusal: The error, if there was one.
        request_id: Id of the request in the service's logs, if the caller got it.
    """

    sample: str
    began: float
    ended: float
    answer: Any = None
    part: Sequence[Any] = ()
    refusal: Refusal | None = None
    request_id: str = ""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What is right for a request.

    Attributes:
        expected: Its only right answer; None for a request that is never answered.
        others: Further right answers, while the model's revisions are switched.
        cancelled: Whether its caller leaves before the end.
        deadline: Seconds until the caller's own deadline, if it is meant to be met or passed.
        deadly: Whether the request hangs its workers and has to be refused as the cause.
        refusable: Further codes of refusals with a reason, after which nothing has changed.
    """

    expected: Any
    others: Sequence[Any] = ()
    cancelled: bool = False
    deadline: float | None = None
    deadly: bool = False
    refusable: Collection[str] = ()


@dataclass(frozen=True, kw_only=True)
class Disturbance:
    """When a fault happened, on the campaign's clock, in seconds."""

    kind: FaultKind
    began: float
    ended: float


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """A verdict, and why."""

    verdict: Verdict
    why: str


def same(expected: Any, found: Any) -> bool:
    """Whether two answers are equal; floats up to a relative error."""
    if isinstance(expected, float) and isinstance(found, float):
        return math.isclose(expected, found, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
    if isinstance(expected, Mapping) and isinstance(found, Mapping):
        return expected.keys() == found.keys() and all(
            same(value, found[name]) for name, value in expected.items()
        )
    if isinstance(expected, list | tuple) and isinstance(found, list | tuple):
        return len(expected) == len(found) and all(map(same, expected, found))
    return bool(type(expected) is type(found) and expected == found)


def judge(
    outcome: Outcome, rules: Rules, disturbances: Sequence[Disturbance], *, bound: float
) -> Judgement:
    """Judges one attempt.

    Args:
        outcome: What the caller saw.
        rules: What is right.
        disturbances: All faults so far.
        bound: Seconds within which every request has to end in one way or another.
    """

    def of(verdict: Verdict, why: str) -> Judgement:
        return Judgement(verdict=verdict, why=why)

    seconds = outcome.ended - outcome.began
    if seconds > bound:
        return of(Verdict.DEFECT, f"took {seconds:.1f} s")
    refusal, right = outcome.refusal, (rules.expected, *rules.others)
    if refusal is None and not rules.cancelled:
        if not rules.deadly and any(same(each, outcome.answer) for each in right):
            return of(Verdict.RIGHT, "answered")
        return of(Verdict.DEFECT, f"answered {outcome.answer}, not {right}")
    length = len(outcome.part)
    if length and not any(same(each[:length], outcome.part) for each in right):
        return of(Verdict.DEFECT, f"began with {outcome.part}, not {right}")
    if refusal is None:
        return of(Verdict.RIGHT, "cancelled")
    verdict = _judge_refusal(refusal, outcome, rules, disturbances)
    return of(verdict, f"{refusal.code}: {refusal.reason}")


def _judge_refusal(
    refusal: Refusal, outcome: Outcome, rules: Rules, disturbances: Sequence[Disturbance]
) -> Verdict:
    if not refusal.reason:
        return Verdict.DEFECT
    if refusal.code in rules.refusable:
        return Verdict.REFUSED
    if refusal.code == "DEADLY_REQUEST":
        return Verdict.RIGHT if rules.deadly else Verdict.DEFECT
    if refusal.code == "DEADLINE_EXCEEDED":
        return Verdict.DEFECT if rules.deadline is None else Verdict.RIGHT
    hinted = (
        refusal.code in ("RESOURCE_EXHAUSTED", "UNAVAILABLE") and refusal.retry_after is not None
    )
    return Verdict.REFUSED if hinted or _excused(refusal, outcome, disturbances) else Verdict.DEFECT


def _excused(refusal: Refusal, outcome: Outcome, disturbances: Sequence[Disturbance]) -> bool:
    """Whether a fault between the caller and its router explains a refusal."""

    def met(kinds: Collection[FaultKind], seconds: float) -> bool:
        return any(
            each.kind in kinds
            and each.began <= outcome.ended
            and outcome.began <= each.ended + seconds
            for each in disturbances
        )

    if refusal.connection:
        return met(NEAR_CALLERS, AFTERMATH)
    # A router cannot read the newest tokens without file descriptors, or while half of the file is
    # missing.
    unknown = refusal.code in ("UNAUTHENTICATED", "HTTP 401")
    return unknown and met({FaultKind.STARVE_ROUTER, FaultKind.TEAR_TOKENS}, RELOADED)
