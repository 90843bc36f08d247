"""Signatures: the static shapes that graphs are compiled for."""

import re
from dataclasses import dataclass
from enum import StrEnum


class GraphKind(StrEnum):
    """What a graph computes."""

    ENCODE = "encode"
    PREFILL = "prefill"
    DECODE = "decode"
    ALIGN = "align"


_SHORT_FORM = re.compile(
    rf"(?P<model>\S+) (?P<kind>{'|'.join(GraphKind)}) (?P<rows>\d+)x(?P<length>\d+)"
    r"( beams (?P<beams>\d+))?"
)


@dataclass(frozen=True, kw_only=True, order=True)
class Signature:
    """The static shape of one graph. Everything else about a request is a tensor.

    Attributes:
        model: Name of the model.
        kind: What the graph computes.
        beams: Beam width of the lane; 1 without beam search. Always 1 for the other kinds, which
            all lanes share.
        rows: Number of requests computed together.
        length: Padded tokens: of the source for encode, of the prompt for prefill, of the
            transcript for align. For decode it is the length of the attended cache: a token of the
            prompt takes one position, a step takes `beams`, and a source must fit beside them.
    """

    model: str
    kind: GraphKind
    beams: int
    rows: int
    length: int

    def covers(self, other: "Signature") -> bool:
        """Whether a request for `other` gets the same answer from a graph of this shape."""
        return (
            self.model == other.model
            and self.kind == other.kind
            and self.beams == other.beams
            and self.rows >= other.rows
            and self.length >= other.length
        )

    @property
    def lattice(self) -> tuple[str, GraphKind, int]:
        """The model, kind and beams that it shares with all signatures that may cover it."""
        return self.model, self.kind, self.beams

    @property
    def cost_order(self) -> tuple[int, int]:
        """Sort key of covers, cheapest first.

        All kinds except decode compute every padded token. In decode, another row costs more per
        step than a longer cache.
        """
        if self.kind is not GraphKind.DECODE:
            return self.rows * self.length, self.rows
        return self.rows, self.length

    @classmethod
    def parse(cls, text: str) -> "Signature":
        """Reads the short form that `str` gives.

        Raises:
            ValueError: The text is not a signature.
        """
        match = _SHORT_FORM.fullmatch(text.strip())
        if match is None:
            raise ValueError(
                f"a signature is MODEL KIND ROWSxLENGTH [beams BEAMS], e.g. 'gpt2 decode 4x256', "
                f"got {text!r}"
            )
        return cls(
            model=match["model"],
            kind=GraphKind(match["kind"]),
            rows=int(match["rows"]),
            length=int(match["length"]),
            beams=int(match["beams"] or 1),
        )

    def __str__(self) -> str:
        """The short form for logs and tables, e.g. `gpt2 decode 4x256`."""
        beams = f" beams {self.beams}" if self.beams > 1 else ""
        return f"{self.model} {self.kind} {self.rows}x{self.length}{beams}"
