"""Signatures, the static shapes that graphs are compiled for, and their short text form."""

import enum
import re
from dataclasses import dataclass

from shaperouter._errors import InvalidArgumentError

_FORM = "MODEL KIND ROWSxLENGTH, then 'beams N' with beam search, such as 'gpt2 decode 4x256'"
_SIZES = re.compile(r"\d{1,9}(x\d{1,9}){1,8}", re.ASCII)
_EXACT = re.compile(r"\d{1,9}(x\d{1,9}){0,8}", re.ASCII)
_BEAMS = re.compile(r"\d{1,9}", re.ASCII)


class GraphKind(enum.StrEnum):
    """What a compiled graph computes."""

    ENCODE = "encode"  # reads sources; only for models with an encoder
    PREFILL = "prefill"  # reads prompts, or a piece of a long one
    SCORE = "score"  # does the same, and computes the log-probabilities of their tokens
    DECODE = "decode"  # advances the active sequences together, one token per step
    ALIGN = "align"  # reads transcripts again to find the times of their words
    CALL = "call"  # calls a function or a text encoder once
    UNKNOWN = "unknown"  # a kind that this version of the client does not know


# The kinds that a caller can name.
KNOWN_KINDS = tuple(kind for kind in GraphKind if kind is not GraphKind.UNKNOWN)
# The same, for error messages: "encode, prefill, score or decode".
KINDS = f"{', '.join(KNOWN_KINDS[:-1])} or {KNOWN_KINDS[-1]}"


@dataclass(frozen=True, kw_only=True)
class Signature:
    """The static shape of one graph; ``str()`` gives the short form that `parse` reads.

    Attributes:
        model: Name of the model.
        kind: What the graph computes.
        rows: Number of requests computed together.
        length: Padded length in tokens. For encode it is the length of the source, for prefill and
            score of the prompt, for align of the transcript. For decode it is the length of the
            attended cache: a token of the prompt takes one position, and a step takes as many as
            there are beams. For call it is the padded size of the first axis; 1 if there is none.
        beams: Beam width; 1 without beam search.
        further: Padded sizes of the other axes of a call.
        exact: Sizes of a call along axes that cannot be padded.
    """

    model: str
    kind: GraphKind
    rows: int
    length: int
    beams: int = 1
    further: tuple[int, ...] = ()
    exact: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text: str, *, field: str = "signature") -> "Signature":
        """Reads the short form: ``gpt2 prefill 1x16``, ``gpt2 decode 4x256 beams 4``.

        A call has further sizes where its model has more axes, ``f call 8x128x64``, and exact ones
        where axes cannot be padded: ``f call 8x128 exact 3``.

        Args:
            text: The text to read; it may contain runs of spaces.
            field: Name of the field in error messages.

        Raises:
            InvalidArgumentError: The text is not a signature; the error says which part is wrong.
        """
        words = text.split()
        if len(words) not in (3, 5):
            raise InvalidArgumentError.of(field, f"must read {_FORM}, got {text!r}")
        model, kind, size, *rest = words
        if kind not in KNOWN_KINDS:
            raise _invalid(field, f"the kind must be {KINDS}, got {kind!r}", text)
        if not _SIZES.fullmatch(size) or (kind != GraphKind.CALL and size.count("x") > 1):
            raise _invalid(
                field, f"the size must read ROWSxLENGTH, such as 4x256, got {size!r}", text
            )
        rows, length, *further = map(int, size.split("x"))
        beams = 1
        exact: tuple[int, ...] = ()
        if rest:
            if kind == GraphKind.CALL and rest[0] == "exact" and _EXACT.fullmatch(rest[1]):
                exact = tuple(map(int, rest[1].split("x")))
            elif kind != GraphKind.CALL and rest[0] == "beams" and _BEAMS.fullmatch(rest[1]):
                beams = int(rest[1])
            else:
                suffix = " ".join(rest)
                form = "exact SIZES" if kind == GraphKind.CALL else "beams N"
                raise _invalid(
                    field, f"what follows the size must read {form!r}, got {suffix!r}", text
                )
        return cls(
            model=model,
            kind=GraphKind(kind),
            rows=rows,
            length=length,
            beams=beams,
            further=tuple(further),
            exact=exact,
        )

    @property
    def shape(self) -> str:
        """The short form without the model: ``decode 4x256 beams 4``."""
        beams = f" beams {self.beams}" if self.beams > 1 else ""
        return f"{self.kind} {self.rows}x{self.length_text}{beams}"

    @property
    def length_text(self) -> str:
        """All sizes after the rows: ``256``, ``128x64`` or ``128 exact 3``."""
        sizes = "x".join(map(str, (self.length, *self.further)))
        exact = f" exact {'x'.join(map(str, self.exact))}" if self.exact else ""
        return f"{sizes}{exact}"

    def __str__(self) -> str:
        """Model, kind, sizes, and the beams if there are several."""
        return f"{self.model} {self.shape}"


def _invalid(field: str, what: str, text: str) -> InvalidArgumentError:
    return InvalidArgumentError.of(field, f"{what} in {text!r}")
