"""The ladders of a model: the allowed values of each dimension of its signatures.

Signatures form a closed set, the product of the ladders, because a compiled graph is never freed.
The possible shapes must be few, known in advance, and exact at the model's maximum.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from shaperouter_service.routing.ladder import Ladder, chosen_ladder, doubling_ladder, length_ladder
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
        decode_rows: How many requests are decoded together; the last rung is the number of slots.
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
        rows: How many sources are read together, up to `batch_tokens`.
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
        prefill_lengths: Padded prompt lengths, in tokens.
        prefill_rows: How many prompts are read together, up to `prefill_batch_tokens`.
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
            ValueError: No lane is wide enough. Requests are validated before.
        """
        for lane in self.lanes:
            if lane.beams >= beams:
                return lane
        raise ValueError(f"{beams} beams are more than the widest lane has, {self.lanes[-1].beams}")

    @property
    def usual_beams(self) -> int:
        """A width that is enough for most beam searches: that of the second widest lane."""
        return self.lanes[-2].beams

    def sources_together(self, length: int) -> Ladder:
        """How many sources of a rung `length` may be read together; one without an encoder."""
        if self.encoder is None:
            return Ladder((1,))
        return _together(self.encoder.rows, length, self.encoder.batch_tokens)

    def prompts_together(self, length: int) -> Ladder:
        """How many prompts of a rung `length` may be read together."""
        return _together(self.prefill_rows, length, self.prefill_batch_tokens)

    def positions(
        self, *, prompt_tokens: int, new_tokens: int, beams: int, source_tokens: int
    ) -> int:
        """Positions that decoding a request takes at its end, in a lane of `beams`.

        A decode graph needs this many for the tokens, and further ones for the source. With an
        encoder, the first step reads the last token of a prompt.
        """
        if self.encoder is None:
            # The prompt gives the first token, without a step.
            return prompt_tokens + beams * max(1, new_tokens - 1)
        tokens = prompt_tokens - 1 + beams * new_tokens
        return tokens if self.encoder.has_whole_source else max(tokens, source_tokens)

    def read_tokens(self, prompt_tokens: int) -> int:
        """Tokens of a prompt that prefill reads. With an encoder, the first step reads the last."""
        return prompt_tokens if self.encoder is None else prompt_tokens - 1

    def encode(self, model: str, *, rows: int, source_tokens: int) -> Signature:
        """The tight cover to encode `rows` sources of up to `source_tokens` positions.

        Raises:
            ValueError: The model has no encoder.
        """
        if self.encoder is None:
            raise ValueError(f"{model} has no encoder")
        length = self.encoder.lengths.cover(source_tokens)
        return Signature(
            model=model,
            kind=GraphKind.ENCODE,
            beams=1,
            rows=self.sources_together(length).cover(rows),
            length=length,
        )

    def prefill(self, model: str, *, rows: int, prompt_tokens: int) -> Signature:
        """The tight cover to prefill `rows` prompts of up to `prompt_tokens` tokens."""
        length = self.prefill_lengths.cover(prompt_tokens)
        return Signature(
            model=model,
            kind=GraphKind.PREFILL,
            beams=1,
            rows=self.prompts_together(length).cover(rows),
            length=length,
        )

    def decode(self, model: str, *, rows: int, length: int, beams: int) -> Signature:
        """The tight cover to decode `rows` requests that reach `length` positions."""
        lane = self.lane(beams)
        return Signature(
            model=model,
            kind=GraphKind.DECODE,
            beams=lane.beams,
            rows=lane.decode_rows.cover(rows),
            length=lane.decode_lengths.cover(length),
        )

    def align(self, model: str, *, tokens: int) -> Signature:
        """The tight cover to align a transcript of `tokens` tokens, including the prompt.

        Transcripts are aligned one at a time, because one transcript already fills a call.

        Raises:
            ValueError: The model makes no transcripts.
        """
        if self.encoder is None or self.encoder.align_lengths is None:
            raise ValueError(f"{model} makes no transcripts")
        length = self.encoder.align_lengths.cover(tokens)
        return Signature(model=model, kind=GraphKind.ALIGN, beams=1, rows=1, length=length)

    def first_align(self, model: str) -> Signature:
        """The align graph that is made first; it covers every transcript.

        Raises:
            ValueError: The model makes no transcripts.
        """
        return self.align(model, tokens=self.prefill_lengths.maximum)

    def first_encode(self, model: str) -> Signature:
        """The encode graph that a worker makes first; it has one row and covers every source.

        Raises:
            ValueError: The model has no encoder.
        """
        longest = self.encoder.lengths.maximum if self.encoder else 0
        return self.encode(model, rows=1, source_tokens=longest)

    def first_prefill(self, model: str) -> Signature:
        """The prefill graph that a worker makes first; it has one row and covers every prompt."""
        return self.prefill(model, rows=1, prompt_tokens=self.prefill_lengths.maximum)

    def first_decode(self, model: str, beams: int) -> Signature:
        """The decode graph that a lane makes first; it has one row and serves requests in turn."""
        longest = self.lane(beams).decode_lengths.maximum
        return self.decode(model, rows=1, length=longest, beams=beams)

    def first(self, model: str) -> list[Signature]:
        """The graphs that together cover every possible request: one of each kind and each lane."""
        decodes = (self.first_decode(model, lane.beams) for lane in self.lanes)
        aligns = [self.first_align(model)] if self.aligns else []
        return [*self.first_to_read(model), *decodes, *aligns]

    def first_to_read(self, model: str) -> list[Signature]:
        """The first graphs that read sources and prompts."""
        encodes = [self.first_encode(model)] if self.encoder else []
        return [*encodes, self.first_prefill(model)]

    def tight(self, signature: Signature) -> Signature:
        """The tight cover of a signature, which may come from other ladders.

        Raises:
            ValueError: These ladders end below it in one dimension.
        """
        model, rows, length = signature.model, signature.rows, signature.length
        if signature.kind is GraphKind.ENCODE:
            return self.encode(model, rows=rows, source_tokens=length)
        if signature.kind is GraphKind.PREFILL:
            return self.prefill(model, rows=rows, prompt_tokens=length)
        if signature.kind is GraphKind.ALIGN:
            return self.align(model, tokens=length)
        return self.decode(model, rows=rows, length=length, beams=signature.beams)

    def signatures(self, model: str) -> list[Signature]:
        """Every possible signature of a model."""
        encode = [
            Signature(model=model, kind=GraphKind.ENCODE, beams=1, rows=rows, length=length)
            for length in (self.encoder.lengths.rungs if self.encoder else ())
            for rows in self.sources_together(length).rungs
        ]
        prefill = [
            Signature(model=model, kind=GraphKind.PREFILL, beams=1, rows=rows, length=length)
            for length in self.prefill_lengths.rungs
            for rows in self.prompts_together(length).rungs
        ]
        decode = [
            Signature(
                model=model, kind=GraphKind.DECODE, beams=lane.beams, rows=rows, length=length
            )
            for lane in self.lanes
            for rows in lane.decode_rows.rungs
            for length in lane.decode_lengths.rungs
        ]
        aligned = self.encoder and self.encoder.align_lengths
        align = [self.align(model, tokens=length) for length in (aligned.rungs if aligned else ())]
        return encode + prefill + decode + align


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
