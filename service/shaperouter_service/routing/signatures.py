"""Signatures: the static shapes that graphs are compiled for."""

import math
import re
from dataclasses import dataclass
from enum import StrEnum


class GraphKind(StrEnum):
    """What a graph computes."""

    ENCODE = "encode"
    PREFILL = "prefill"
    SCORE = "score"
    DECODE = "decode"
    ALIGN = "align"
    CALL = "call"

    # Enum's hash is a Python function, and signatures are hashed many times for each request.
    __hash__ = str.__hash__


_SHORT_FORM = re.compile(
    rf"(?P<model>\S+) (?P<kind>{'|'.join(GraphKind)}) (?P<rows>\d+)x(?P<length>\d+)"
    r"(?P<further>(x\d+)*)( exact (?P<exact>\d+(x\d+)*))?( beams (?P<beams>\d+))?"
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
        length: Padded tokens: of the source for encode, of the prompt for prefill and score, of the
            transcript for align. For decode it is the length of the attended cache: a token of the
            prompt takes one position, a step takes `beams`, and a source must fit beside them. For
            call it is the padded size of the first axis, 1 if there is none.
        further: Padded sizes of the other axes, for call only.
        exact: Sizes along axes that cannot be padded, for call only.
    """

    model: str
    kind: GraphKind
    beams: int = 1
    rows: int
    length: int
    further: tuple[int, ...] = ()
    exact: tuple[int, ...] = ()

    def covers(self, other: "Signature") -> bool:
        """Whether a request for `other` gets the same answer from a graph of this shape."""
        return (
            self.lattice == other.lattice
            and self.rows >= other.rows
            and all(mine >= size for mine, size in zip(self.sizes, other.sizes, strict=True))
        )

    @property
    def lattice(self) -> tuple[str, GraphKind, int, tuple[int, ...]]:
        """The model, kind, beams and exact sizes that it shares with all that may cover it."""
        return self.model, self.kind, self.beams, self.exact

    @property
    def sizes(self) -> tuple[int, ...]:
        """The padded sizes of all axes after the rows."""
        return self.length, *self.further

    @property
    def elements(self) -> int:
        """Rows times the product of all other sizes."""
        return self.rows * math.prod(self.sizes) * math.prod(self.exact)

    @property
    def length_text(self) -> str:
        """All sizes after the rows, for labels of metrics: `128`, `128x64` or `128 exact 3`."""
        exact = f" exact {'x'.join(map(str, self.exact))}" if self.exact else ""
        return f"{'x'.join(map(str, self.sizes))}{exact}"

    @property
    def cost_order(self) -> tuple[int, int]:
        """Sort key of covers, cheapest first.

        All kinds except decode compute every padded token. In decode, another row costs more per
        step than a longer cache.
        """
        if self.kind is not GraphKind.DECODE:
            return self.elements, self.rows
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
                f"a signature is MODEL KIND ROWSxLENGTH[xSIZE…] [exact SIZE…] [beams BEAMS], "
                f"e.g. 'gpt2 decode 4x256', "
                f"got {text!r}"
            )
        return cls(
            model=match["model"],
            kind=GraphKind(match["kind"]),
            rows=int(match["rows"]),
            length=int(match["length"]),
            beams=int(match["beams"] or 1),
            further=_sizes(match["further"]),
            exact=_sizes(match["exact"] or ""),
        )

    def __str__(self) -> str:
        """The short form for logs and tables, e.g. `gpt2 decode 4x256`."""
        beams = f" beams {self.beams}" if self.beams > 1 else ""
        return f"{self.model} {self.kind} {self.rows}x{self.length_text}{beams}"


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(int(size) for size in text.split("x") if size)
