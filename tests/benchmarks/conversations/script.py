"""What callers say and when, drawn from seeds: the same numbers of tokens for each contestant.

All conversations begin with one system prompt. Each turn sends the whole history: the system
prompt, and what the user and the model have said so far. What the model says is what the contestant
answered, so the texts differ between contestants, and their lengths do not. A conversation ends
when another turn would not fit into the model's positions, and the caller begins another one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from common.checkpoint import END_TOKEN

SYSTEM_TOKENS = 256
MIN_USER_TOKENS, MAX_USER_TOKENS = 30, 60
ANSWER_TOKENS = 48
# Below the model's 1,024 positions: some servers need a few for themselves.
MAX_LENGTH = 1008
# Seconds between an answer and the next turn, evenly distributed.
MIN_THINK, MAX_THINK = 1.0, 3.0
SYSTEM_SEED = 0


@dataclass(frozen=True, kw_only=True)
class Turn:
    """A turn of a caller.

    Attributes:
        number: Its number in its conversation, from 1.
        think: Seconds to wait before it is sent.
        opening: Tokens that a new conversation begins with; empty if this turn continues one.
        user: The user's tokens.
        counts: Whether it is measured.
    """

    number: int
    think: float
    opening: list[int]
    user: list[int]
    counts: bool


def system_prompt(tokens: int = SYSTEM_TOKENS) -> list[int]:
    """The beginning of all conversations."""
    return _draw(np.random.default_rng(SYSTEM_SEED), tokens)


def draw_turns(seed: Sequence[int], caller: int, count: int) -> list[Turn]:
    """The turns of a caller: one that is not measured, and then `count` that are.

    Caller number n joins its first conversation after n turns, so that histories have all lengths
    from the start. The turn before the measured ones lets contestants read this history.

    Args:
        seed: Numbers that form a seed together.
        caller: Number of the caller.
        count: Number of measured turns.
    """
    rng = np.random.default_rng([*seed, caller])
    turns: list[Turn] = []
    said = caller
    while len(turns) <= count:
        lengths = _draw_lengths(rng)
        said %= len(lengths)
        earlier = sum(lengths[:said]) + said * ANSWER_TOKENS
        opening = [*system_prompt(), *_draw(rng, earlier)]
        for number, length in enumerate(lengths[said:], said + 1):
            turns.append(
                Turn(
                    number=number,
                    think=float(rng.uniform(MIN_THINK, MAX_THINK)),
                    opening=opening,
                    user=_draw(rng, length),
                    counts=bool(turns),
                )
            )
            opening = []
        said = 0
    return turns[: 1 + count]


def _draw_lengths(rng: np.random.Generator) -> list[int]:
    """Draws the length of each user message, until the next turn would pass the limit."""
    lengths: list[int] = []
    left = MAX_LENGTH - SYSTEM_TOKENS
    while True:
        length = int(rng.integers(MIN_USER_TOKENS, MAX_USER_TOKENS + 1))
        left -= length + ANSWER_TOKENS
        if left < 0:
            return lengths
        lengths.append(length)


def _draw(rng: np.random.Generator, count: int) -> list[int]:
    tokens: list[int] = rng.integers(END_TOKEN, size=count).tolist()
    return tokens
