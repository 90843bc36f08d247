"""Signatures: the static shapes graphs are compiled for."""

import enum
from dataclasses import dataclass


class GraphKind(enum.StrEnum):
    """What a compiled graph computes."""

    PREFILL = "prefill"  # reads a prompt, or a piece of a long one, and chooses the first token
    DECODE = "decode"  # advances the active sequences together, one token a step
    UNKNOWN = "unknown"  # a kind that this version of the client does not know


@dataclass(frozen=True, kw_only=True)
class Signature:
    """The static shape of one graph; ``str()`` gives the short form ``decode 4x256``.

    Attributes:
        model: Name of the model.
        kind: What the graph computes.
        rows: Requests computed together.
        length: Padded length in tokens: of the prompt for prefill; of the attended cache for
            decode, where a prompt's token takes one place and a step as many as there are beams.
        beams: Beam width; 1 without beam search.
    """

    model: str
    kind: GraphKind
    rows: int
    length: int
    beams: int = 1

    def __str__(self) -> str:
        """Kind, rows x length, and the beams when there are several; without the model."""
        beams = f" b{self.beams}" if self.beams > 1 else ""
        return f"{self.kind} {self.rows}x{self.length}{beams}"
