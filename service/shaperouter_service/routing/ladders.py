"""The ladders of a model: the allowed values of each dimension of its signatures.

Signatures form a closed set, the product of the ladders, because a compiled graph is never freed.
The possible shapes must be few, known in advance, and exact at the model's maximum.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from shaperouter_service.routing.ladder import (
    Ladder,
    OverLadderError,
    chosen_ladder,
    doubling_ladder,
    length_ladder,
)
from shaperouter_service.routing.signatures import GraphKind, Signature

# Prefill computes every padded token, so its padding is limited to half of the prompt. Decode only
# attends to the padded cache, a small part of a step, so rungs twice as far apart save
# compilations.
PREFILL_SHORTEST, PREFILL_MAX_PADDING = 16, 0.5
DECODE_SHORTEST, DECODE_MAX_PADDING = 64, 1.0

# An encoder also computes every padded token of a source, and cannot read it in pieces.
ENCODE_SHORTEST, ENCODE_MAX_PADDING = 16, 0.5

# Prompts are read in pieces of this many tokens, so that running streams wait for no more than one
# piece. On a CPU, products of this many rows are as efficient as larger ones.
PREFILL_PIECE = 128
# Maximum tokens of several prompts that are read together, for the same reason.
PREFILL_BATCH_TOKENS = 128

# Widths of beam search. A request of another width runs on the next larger one, with beams masked.
BEAMS = (1, 2, 4, 8)
# For models that make transcripts: users search with 5 beams, as openai/whisper does.
TRANSCRIPT_BEAMS = (1, 2, 4, 5, 8)


@dataclass(frozen=True, kw_only=True)
class LaneLadders:
    """The ladders of the lane of one beam width.

    Attributes:
        beams: Beam width; 1 means no beam search.
        decode_rows: Numbers of requests decoded together; the last rung is the number of slots.
        decode_lengths: Lengths of the attended cache: a token of the prompt takes one position, a
            step takes `beams`.
    """

    beams: int
    decode_rows: Ladder
    decode_lengths: Ladder


@dataclass(frozen=True, kw_only=True)
class EncoderLadders:
    """The ladders of a model's encoder.

    Attributes:
        lengths: Padded source lengths, in positions.
        rows: Numbers of sources that are read together, up to `batch_tokens`.
        batch_tokens: Maximum padded positions of an encode of several sources.
        has_whole_source: Whether every decode graph has room for a source of the last length. If
            False, a decode graph's length must be enough for the source, too.
        align_lengths: Padded lengths of transcripts to align with their sources, in tokens; None
            for a model that makes none.
    """

    lengths: Ladder
    rows: Ladder
    batch_tokens: int
    has_whole_source: bool = False
    align_lengths: Ladder | None = None


@dataclass(frozen=True, kw_only=True)
class Ladders:
    """The ladders of one model.

    Attributes:
        prefill_lengths: Padded prompt lengths, in tokens. Score graphs have the ladders of prefill.
        prefill_rows: Numbers of prompts that are read together, up to `prefill_batch_tokens`.
        prefill_batch_tokens: Maximum padded tokens of a prefill of several prompts.
        prefill_piece: Maximum tokens of a prompt that one call reads.
        lanes: One entry for each beam width, in ascending order.
        encoder: Ladders of the encoder; None if there is none.
    """

    prefill_lengths: Ladder
    prefill_rows: Ladder
    prefill_batch_tokens: int
    prefill_piece: int
    lanes: tuple[LaneLadders, ...]
    encoder: EncoderLadders | None = None

    @classmethod
    def default(
        cls,
        *,
        max_length: int,
        slots: int,
        prefill_piece: int = PREFILL_PIECE,
        prefill_lengths: Sequence[int] = (),
        decode_lengths: Sequence[int] = (),
        max_source_length: int = 0,
        has_whole_source: bool = False,
        encode_lengths: Sequence[int] = (),
        has_transcript: bool = False,
    ) -> "Ladders":
        """The ladders of a model of `max_length` tokens on a worker with `slots` slots.

        Args:
            max_length: Maximum tokens of a sequence.
            slots: Number of requests without beam search that run at a time. Beam search of width B
                takes as much memory and time as B of them, so its lane has fewer slots.
            prefill_piece: Tokens of a prompt that are read at a time.
            prefill_lengths: Chosen lengths below the maximum; if empty, the default ladder is used.
            decode_lengths: Likewise, in tokens of a sequence: beam search of width B takes B times
                as many positions.
            max_source_length: Maximum positions of a source; 0 without an encoder.
            has_whole_source: See `EncoderLadders`.
            encode_lengths: Like `prefill_lengths`, for sources.
            has_transcript: Whether the model makes transcripts, which can be aligned.

        Raises:
            ValueError: The chosen lengths do not form a ladder; the message says which.
        """
        if encode_lengths and not max_source_length:
            chosen = ",".join(map(str, encode_lengths))
            raise ValueError(f"encode-lengths: must be for a model with an encoder, got {chosen}")
        return cls(
            prefill_lengths=_prefill_lengths(max_length, prefill_piece, prefill_lengths),
            prefill_rows=doubling_ladder(slots),
            # At most one piece: prompts of several pieces are read alone.
            prefill_batch_tokens=min(PREFILL_BATCH_TOKENS, prefill_piece),
            prefill_piece=prefill_piece,
            lanes=tuple(
                LaneLadders(
                    beams=beams,
                    decode_rows=doubling_ladder(max(1, slots // beams)),
                    decode_lengths=_decode_lengths(max_length, beams, decode_lengths),
                )
                for beams in (TRANSCRIPT_BEAMS if has_transcript else BEAMS)
            ),
            encoder=EncoderLadders(
                lengths=_encode_lengths(max_source_length, has_whole_source, encode_lengths),
                rows=doubling_ladder(slots),
                batch_tokens=PREFILL_BATCH_TOKENS,
                has_whole_source=has_whole_source,
                align_lengths=_decode_lengths(max_length, 1) if has_transcript else None,
            )
            if max_source_length
            else None,
        )

    @property
    def aligns(self) -> bool:
        """Whether the model's transcripts can be aligned."""
        return self.encoder is not None and self.encoder.align_lengths is not None

    def lane(self, beams: int) -> LaneLadders:
        """The narrowest lane for a request of `beams` beams.

        Raises:
            OverLadderError: No lane is wide enough. Requests are validated before.
        """
        for lane in self.lanes:
            if lane.beams >= beams:
                return lane
        widest = self.lanes[-1].beams
        raise OverLadderError(f"{beams} beams are more than the widest lane has, {widest}")

    @property
    def usual_beams(self) -> int:
        """A width that is enough for most beam searches: that of the second widest lane."""
        return self.lanes[-2].beams

    def lengths(self, kind: GraphKind, beams: int = 1) -> Ladder:
        """The lengths of graphs of a kind, in a lane for requests of `beams` beams.

        Raises:
            ValueError: The model has no such graphs.
        """
        encoder = self.encoder
        match kind:
            case GraphKind.ENCODE if encoder is not None:
                return encoder.lengths
            case GraphKind.PREFILL:
                return self.prefill_lengths
            case GraphKind.SCORE if not self.aligns:
                return self.prefill_lengths
            case GraphKind.DECODE:
                return self.lane(beams).decode_lengths
            case GraphKind.ALIGN if encoder is not None and encoder.align_lengths is not None:
                return encoder.align_lengths
        raise ValueError(f"the model has no graphs of kind {kind}")

    def rows(self, kind: GraphKind, length: int, beams: int = 1) -> Ladder:
        """How many requests graphs of a kind and of a rung `length` compute together."""
        if kind is GraphKind.ENCODE and self.encoder is not None:
            return _together(self.encoder.rows, length, self.encoder.batch_tokens)
        if kind in (GraphKind.PREFILL, GraphKind.SCORE):
            return _together(self.prefill_rows, length, self.prefill_batch_tokens)
        if kind is GraphKind.DECODE:
            return self.lane(beams).decode_rows
        # Transcripts are aligned one at a time, because one transcript already fills a call.
        return Ladder((1,))

    @property
    def kinds(self) -> list[tuple[GraphKind, int]]:
        """The kinds of graphs of the model, each with the beam width of a lane."""
        encode = [(GraphKind.ENCODE, 1)] if self.encoder else []
        decodes = [(GraphKind.DECODE, lane.beams) for lane in self.lanes]
        # The prompts of transcripts are the service's own, so nobody asks how likely they are.
        last = GraphKind.ALIGN if self.aligns else GraphKind.SCORE
        return [*encode, (GraphKind.PREFILL, 1), *decodes, (last, 1)]

    def positions(
        self, *, prompt_tokens: int, new_tokens: int, beams: int, source_tokens: int
    ) -> int:
        """Positions that decoding a request takes at its end, in a lane of `beams`.

        A decode graph needs this many for the tokens, and further ones for the source. With an
        encoder, the first step reads the last token of a prompt.
        """
        if self.encoder is None:
            # The prompt gives the first token, without a step.
            return prompt_tokens + beams * min(new_tokens, max(1, new_tokens - 1))
        tokens = prompt_tokens - 1 + beams * new_tokens
        return tokens if self.encoder.has_whole_source else max(tokens, source_tokens)

    def read_tokens(self, prompt_tokens: int) -> int:
        """Tokens of a prompt that prefill reads. With an encoder, the first step reads the last."""
        return prompt_tokens if self.encoder is None else prompt_tokens - 1

    def cover(
        self, model: str, kind: GraphKind, *, rows: int, length: int, beams: int = 1
    ) -> Signature:
        """The tight cover of a shape.

        Raises:
            ValueError: The model has no such graphs, or the ladders end below it.
        """
        beams = self.lane(beams).beams if kind is GraphKind.DECODE else 1
        length = self.lengths(kind, beams).cover(length)
        rows = self.rows(kind, length, beams).cover(rows)
        return Signature(model=model, kind=kind, beams=beams, rows=rows, length=length)

    def encode(self, model: str, *, rows: int, source_tokens: int) -> Signature:
        """The tight cover to encode `rows` sources of up to `source_tokens` positions."""
        return self.cover(model, GraphKind.ENCODE, rows=rows, length=source_tokens)

    def prefill(self, model: str, *, rows: int, prompt_tokens: int) -> Signature:
        """The tight cover to prefill `rows` prompts of up to `prompt_tokens` tokens."""
        return self.cover(model, GraphKind.PREFILL, rows=rows, length=prompt_tokens)

    def score(self, model: str, *, rows: int, prompt_tokens: int) -> Signature:
        """The tight cover to score `rows` prompts of up to `prompt_tokens` tokens."""
        return self.cover(model, GraphKind.SCORE, rows=rows, length=prompt_tokens)

    def decode(self, model: str, *, rows: int, length: int, beams: int) -> Signature:
        """The tight cover to decode `rows` requests that reach `length` positions."""
        return self.cover(model, GraphKind.DECODE, rows=rows, length=length, beams=beams)

    def align(self, model: str, *, tokens: int) -> Signature:
        """The tight cover to align a transcript of `tokens` tokens, including the prompt."""
        return self.cover(model, GraphKind.ALIGN, rows=1, length=tokens)

    def first_of(self, model: str, kind: GraphKind, beams: int = 1) -> Signature:
        """The graph of a kind that is made first: it covers each request, one at a time.

        Raises:
            ValueError: The model has no such graphs.
        """
        longest = self.lengths(kind, beams).maximum
        return self.cover(model, kind, rows=1, length=longest, beams=beams)

    def first_decode(self, model: str, beams: int) -> Signature:
        """The decode graph that a lane makes first."""
        return self.first_of(model, GraphKind.DECODE, beams)

    def first(self, model: str) -> list[Signature]:
        """The graphs that together cover every possible request: one of each kind and each lane."""
        return [self.first_of(model, kind, beams) for kind, beams in self.kinds]

    def first_to_read(self, model: str) -> list[Signature]:
        """The first graphs that read sources and prompts."""
        reading = (GraphKind.ENCODE, GraphKind.PREFILL)
        return [signature for signature in self.first(model) if signature.kind in reading]

    def tight(self, signature: Signature) -> Signature:
        """The tight cover of a signature, which may come from other ladders.

        Raises:
            ValueError: These ladders end below it in one dimension.
        """
        rows, length, beams = signature.rows, signature.length, signature.beams
        return self.cover(signature.model, signature.kind, rows=rows, length=length, beams=beams)

    def signatures(self, model: str) -> list[Signature]:
        """Every possible signature of a model."""
        return [
            Signature(model=model, kind=kind, beams=beams, rows=rows, length=length)
            for kind, beams in self.kinds
            for length in self.lengths(kind, beams).rungs
            for rows in self.rows(kind, length, beams).rungs
        ]


def _together(ladder: Ladder, length: int, batch_tokens: int) -> Ladder:
    fitting = [rows for rows in ladder.rungs if rows * length <= batch_tokens]
    return Ladder(tuple(fitting) or (1,))


def _encode_lengths(max_length: int, is_whole: bool, chosen: Sequence[int]) -> Ladder:
    if chosen:
        return _chosen("encode-lengths", chosen, max_length)
    if is_whole:
        return Ladder((max_length,))
    return length_ladder(max_length, shortest=ENCODE_SHORTEST, max_padding=ENCODE_MAX_PADDING)


def _prefill_lengths(max_length: int, piece: int, chosen: Sequence[int]) -> Ladder:
    if chosen:
        return _chosen("prefill-lengths", chosen, max_length)
    whole = length_ladder(
        min(max_length, piece), shortest=PREFILL_SHORTEST, max_padding=PREFILL_MAX_PADDING
    )
    pieced = [rung for rung in _decode_lengths(max_length, 1).rungs if rung > whole.maximum]
    return Ladder((*whole.rungs, *pieced))


def _decode_lengths(max_length: int, beams: int, chosen: Sequence[int] = ()) -> Ladder:
    if chosen:
        ladder = _chosen("decode-lengths", chosen, max_length)
        return Ladder(tuple(beams * rung for rung in ladder.rungs))
    return length_ladder(
        beams * max_length, shortest=DECODE_SHORTEST, max_padding=DECODE_MAX_PADDING
    )


def _chosen(option: str, lengths: Sequence[int], maximum: int) -> Ladder:
    try:
        return chosen_ladder(lengths, maximum=maximum)
    except ValueError as error:
        raise ValueError(f"{option}: {error}") from None
