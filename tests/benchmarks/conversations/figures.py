"""Measured turns, and the figures of a round."""

from collections.abc import Sequence
from dataclasses import dataclass

from common.tables import quantile

# Limits of a useful turn: seconds to the first token, and seconds for each later one. Ten tokens
# per second is faster than people read.
FIRST_LIMIT, TOKEN_LIMIT = 0.5, 0.1


@dataclass(frozen=True, kw_only=True)
class Answered:
    """A measured turn. Times are in seconds.

    Attributes:
        number: Its number in its conversation, from 1.
        prompt: Tokens of its prompt, the whole history.
        tokens: Tokens of its answer.
        sent: Time when it was sent, from the start of the round.
        first: Time from sending to the first tokens.
        total: Time from sending to the end.
        cached: Tokens of the prompt that the server did not read; None if it does not say.
    """

    number: int
    prompt: int
    tokens: int
    sent: float
    first: float
    total: float
    cached: int | None = None

    @property
    def per_token(self) -> float:
        """Seconds for each token after the first."""
        return (self.total - self.first) / (self.tokens - 1)

    @property
    def is_useful(self) -> bool:
        """Whether it was within both limits."""
        return self.first <= FIRST_LIMIT and self.per_token <= TOKEN_LIMIT


@dataclass(frozen=True, kw_only=True)
class Figures:
    """The figures of a contestant's round.

    Attributes:
        first: Median seconds to the first token.
        first_p95: 95th percentile of the seconds to the first token.
        per_token: Median seconds for each later token.
        tokens_per_second: Tokens of answers a second, from the first turn sent to the last end.
        useful: Share of the turns that were within the limits.
        useful_per_second: Turns a second that were within the limits.
        cached: Share of the prompts' tokens that the server did not read; None if it does not say.
    """

    first: float
    first_p95: float
    per_token: float
    tokens_per_second: float
    useful: float
    useful_per_second: float
    cached: float | None

    @classmethod
    def of(cls, turns: Sequence[Answered]) -> "Figures":
        """Summarizes the turns of a round."""
        seconds = max(turn.sent + turn.total for turn in turns) - min(turn.sent for turn in turns)
        useful = sum(turn.is_useful for turn in turns)
        known = [turn.cached for turn in turns if turn.cached is not None]
        firsts = [turn.first for turn in turns]
        return cls(
            first=quantile(firsts, 0.5),
            first_p95=quantile(firsts, 0.95),
            per_token=quantile([turn.per_token for turn in turns], 0.5),
            tokens_per_second=sum(turn.tokens for turn in turns) / seconds,
            useful=useful / len(turns),
            useful_per_second=useful / seconds,
            cached=sum(known) / sum(turn.prompt for turn in turns) if known else None,
        )


def firsts_by_number(turns: Sequence[Answered]) -> dict[int, float]:
    """Median seconds to the first token, by the turn's number in its conversation, in order."""
    found: dict[int, list[float]] = {}
    for turn in turns:
        found.setdefault(turn.number, []).append(turn.first)
    return {number: quantile(firsts, 0.5) for number, firsts in sorted(found.items())}
