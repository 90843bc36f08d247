"""Which revision of a model may answer when, while revisions are switched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chaos.processes import Life

# Seconds after a switch in which the other routers may still follow the old revision, as they may
# be frozen, cut off or starting.
SETTLING = 40.0

# Seconds from when a process serves within which it may not know yet what was loaded: it may be
# frozen, or cut off from the others.
LEARNING = 9.0


@dataclass
class _Span:
    """A time in which a revision may answer.

    Attributes:
        location: The revision's.
        since: When its load began.
        until: When it was replaced; infinite if it has not been.
    """

    location: str
    since: float
    until: float = float("inf")


def forgotten(lives: Sequence[Sequence[Life]], loaded_at: float) -> float | None:
    """When no process knew any more, perhaps, what was loaded at a time; None if one always did.

    What was loaded is known only to processes. Once all of them are new, none may know it.

    Args:
        lives: The starts of each process, in order, the first long before any change.
        loaded_at: When the load had ended.
    """
    moments = [life.began for each in lives for life in each[1:]]
    for moment in sorted(moment for moment in moments if moment > loaded_at):
        newest = [[life for life in each if life.began <= moment][-1] for each in lives]
        # One that could not serve yet at the load was not told of it, either.
        if all(life.served > max(loaded_at, moment - LEARNING) for life in newest):
            return moment
    return None


class Revisions:
    """The revisions of one model. The caller allows only one load at a time.

    Attributes:
        answers: What each revision answers, by its location.
    """

    def __init__(self, answers: Mapping[str, Any], *, present: str, given: str) -> None:
        """Starts with no change.

        Args:
            answers: See above.
            present: The revision that serves from the beginning on.
            given: The revision that processes are started with.
        """
        self.answers = answers
        self._given = given
        self._spans = [_Span(present, float("-inf"))]
        self._loaded_at = float("-inf")
        self._is_forgotten = False

    def begin(self, location: str, now: float) -> None:
        """Notes that a load is about to be sent: from now on the revision may answer."""
        self._spans.append(_Span(location, now))

    def loaded(self, now: float) -> None:
        """Notes that the newest load has ended well: all other revisions are replaced."""
        for span in self._spans[:-1]:
            span.until = min(span.until, now)
        self._loaded_at, self._is_forgotten = now, False

    def refused(self, now: float) -> None:
        """Notes that the newest load was refused, so that nothing has changed.

        A load with an unknown end is none: both revisions may answer until a later one ends well.
        """
        self._spans[-1].until = now

    def restarted(self, lives: Sequence[Sequence[Life]]) -> None:
        """Notes when processes were started and could serve.

        If what was loaded is forgotten, the service begins again with the revision that it was
        started with.

        Args:
            lives: The starts of each process, in order, the first long before any change.
        """
        if self._is_forgotten:
            return
        moment = forgotten(lives, self._loaded_at)
        if moment is not None:
            # The newest load stays the last.
            self._spans.insert(0, _Span(self._given, moment))
            self._is_forgotten = True

    def right(self, began: float, ended: float) -> Sequence[Any]:
        """The right answers of a request that began and ended at these times."""
        return [
            self.answers[span.location]
            for span in self._spans
            if span.since <= ended and began <= span.until + SETTLING
        ]
