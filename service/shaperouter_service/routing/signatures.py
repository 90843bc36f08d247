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
    """The static shape of one graph; everything else about a request is a tensor.

    Attributes:
        model: Name of the model.
        kind: What the graph computes.
        beams: Beam width of the lane; 1 without beam search, and for all kinds but decode, which
            lanes share.
        rows: Requests computed together.
        length: Padded tokens: of the source for encode; of the prompt for prefill; of the
            transcript for align; of the attended cache for decode, where a prompt's token takes one
            place and a step `beams`, and where a source must fit beside it.
    """

    model: str
    kind: GraphKind
    beams: int
    rows: int
    length: int

    def covers(self, other: "Signature") -> bool:
        """Tells whether a request for `other` gets the same answer from a graph of this shape."""
        return (
            self.model == other.model
            and self.kind == other.kind
            and self.beams == other.beams
            and self.rows >= other.rows
            and self.length >= other.length
        )

    @property
    def lattice(self) -> tuple[str, GraphKind, int]:
        """What it has in common with the signatures that may cover it: model, kind and beams."""
        return self.model, self.kind, self.beams

    @property
    def cost_order(self) -> tuple[int, int]:
        """Orders covers from cheap to dear.

        All kinds but decode compute every padded token. For decode, a row costs a step more than a
        longer cache does.
        """
        if self.kind is not GraphKind.DECODE:
            return self.rows * self.length, self.rows
        return self.rows, self.length

    @classmethod
    def parse(cls, text: str) -> "Signature":
        """Reads the short form that `str` gives.

        Raises:
            ValueError: It is not one.
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
        """The short form of logs and tables, e.g. `gpt2 decode 4x256`."""
        beams = f" beams {self.beams}" if self.beams > 1 else ""
        return f"{self.model} {self.kind} {self.rows}x{self.length}{beams}"
