"""Ladders: the allowed values of each dimension of a signature.

Signatures form a closed set, the product of the ladders, because a compiled graph is never freed:
what can be asked for must be few, known in advance and exact at the model's maximum.
"""

import math
from bisect import bisect_left
from dataclasses import dataclass

from shaperouter_service.routing.signatures import GraphKind, Signature

# Lengths are multiples of 8 (but for the model's own maximum): a power of two that vector units and
# tensor cores like, small enough not to matter as padding.
LENGTH_MULTIPLE = 8

# Prefill computes every padded token, so its padding is capped at half of the prompt. Decode only
# attends to the padded cache, a small part of a step: rungs twice as far apart save compilations.
PREFILL_SHORTEST, PREFILL_MAX_PADDING = 16, 0.5
DECODE_SHORTEST, DECODE_MAX_PADDING = 64, 1.0


@dataclass(frozen=True)
class Ladder:
    """The allowed values of one dimension, ascending."""

    rungs: tuple[int, ...]

    def __post_init__(self) -> None:
        """Checks the order.

        Raises:
            ValueError: The rungs are not positive and strictly ascending.
        """
        ascending = all(low < high for low, high in zip(self.rungs, self.rungs[1:], strict=False))
        if not self.rungs or self.rungs[0] < 1 or not ascending:
            raise ValueError(f"rungs must be positive and strictly ascending, got {self.rungs}")

    @property
    def maximum(self) -> int:
        """The last rung."""
        return self.rungs[-1]

    def cover(self, value: int) -> int:
        """Returns the first rung that is at least `value`.

        Raises:
            ValueError: `value` is over the last rung. Requests are checked against it before.
        """
        if value > self.maximum:
            raise ValueError(f"{value} is over the last rung, {self.maximum}")
        return self.rungs[bisect_left(self.rungs, value)]


def length_ladder(maximum: int, *, shortest: int, max_padding: float) -> Ladder:
    """Makes the ladder with the fewest rungs that keeps padding under a share of the request.

    Built from the top, so that the model's exact maximum is a rung with no close neighbour below.

    Args:
        maximum: Last rung, in tokens.
        shortest: First rung, in tokens; requests below it are padded to it whatever their share.
        max_padding: Most padding as a share of the request's own length, above `shortest`.

    Raises:
        ValueError: The share is too small for rungs that are multiples of LENGTH_MULTIPLE.
    """
    rungs = [maximum]
    while rungs[0] > shortest:
        # The worst request of a rung is one token longer than the rung below.
        least = rungs[0] / (1 + max_padding) - 1
        below = max(shortest, math.ceil(least / LENGTH_MULTIPLE) * LENGTH_MULTIPLE)
        if below >= rungs[0]:
            raise ValueError(f"no rung below {rungs[0]} keeps padding under {max_padding}")
        rungs.insert(0, below)
    return Ladder(tuple(rungs))


def doubling_ladder(maximum: int) -> Ladder:
    """Makes the ladder 1, 2, 4, … that ends at exactly `maximum`."""
    rungs = []
    rung = 1
    while rung < maximum:
        rungs.append(rung)
        rung *= 2
    return Ladder((*rungs, maximum))


@dataclass(frozen=True, kw_only=True)
class Ladders:
    """The ladders of one model.

    Attributes:
        prefill_lengths: Padded prompt lengths, in tokens.
        decode_lengths: Attended cache lengths, in tokens.
        decode_rows: Sequences decoded together; the last rung is the number of slots.
        beams: Beam widths.
    """

    prefill_lengths: Ladder
    decode_lengths: Ladder
    decode_rows: Ladder
    beams: Ladder

    @classmethod
    def default(cls, *, max_length: int, slots: int) -> "Ladders":
        """The ladders of a model of `max_length` tokens on a worker with `slots` slots a lane."""
        return cls(
            prefill_lengths=length_ladder(
                max_length, shortest=PREFILL_SHORTEST, max_padding=PREFILL_MAX_PADDING
            ),
            decode_lengths=length_ladder(
                max_length, shortest=DECODE_SHORTEST, max_padding=DECODE_MAX_PADDING
            ),
            decode_rows=doubling_ladder(slots),
            beams=Ladder((1,)),
        )

    def prefill(self, model: str, *, prompt_tokens: int, beams: int) -> Signature:
        """The tight cover of the prefill of a prompt."""
        return Signature(
            model=model,
            kind=GraphKind.PREFILL,
            beams=self.beams.cover(beams),
            rows=1,
            length=self.prefill_lengths.cover(prompt_tokens),
        )

    def decode(self, model: str, *, rows: int, length: int, beams: int) -> Signature:
        """The tight cover of decoding `rows` sequences that reach `length` tokens."""
        return Signature(
            model=model,
            kind=GraphKind.DECODE,
            beams=self.beams.cover(beams),
            rows=self.decode_rows.cover(rows),
            length=self.decode_lengths.cover(length),
        )

    def signatures(self, model: str) -> list[Signature]:
        """Every signature there can be for a model."""
        prefill = [
            Signature(model=model, kind=GraphKind.PREFILL, beams=beams, rows=1, length=length)
            for beams in self.beams.rungs
            for length in self.prefill_lengths.rungs
        ]
        decode = [
            Signature(model=model, kind=GraphKind.DECODE, beams=beams, rows=rows, length=length)
            for beams in self.beams.rungs
            for rows in self.decode_rows.rungs
            for length in self.decode_lengths.rungs
        ]
        return prefill + decode
