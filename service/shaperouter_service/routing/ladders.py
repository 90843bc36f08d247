"""Ladders: the allowed values of each dimension of a signature.

Signatures form a closed set, the product of the ladders, because a compiled graph is never freed:
what can be asked for must be few, known in advance and exact at the model's maximum.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from shaperouter_service.routing.signatures import GraphKind, Signature

# Lengths are multiples of 8 (but for the model's own maximum): a power of two that vector units and
# tensor cores like, small enough not to matter as padding.
LENGTH_MULTIPLE = 8

# Prefill computes every padded token, so its padding is capped at half of the prompt. Decode only
# attends to the padded cache, a small part of a step: rungs twice as far apart save compilations.
PREFILL_SHORTEST, PREFILL_MAX_PADDING = 16, 0.5
DECODE_SHORTEST, DECODE_MAX_PADDING = 64, 1.0

# An encoder computes every padded token of a source, too, and cannot read it in pieces.
ENCODE_SHORTEST, ENCODE_MAX_PADDING = 16, 0.5

# Prompts are read in pieces of so many tokens, so that running streams are not held up for longer
# than one takes. Products of so many rows are as efficient as they get on a CPU.
PREFILL_PIECE = 128
# And so many tokens of several prompts are read together, for the same reason.
PREFILL_BATCH_TOKENS = 128

# Widths of beam search. A request of another width runs on the next, with beams masked.
BEAMS = (1, 2, 4, 8)
# Of models that make transcripts, which everybody searches with 5 beams, as openai/whisper does.
TRANSCRIPT_BEAMS = (1, 2, 4, 5, 8)


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


def chosen_ladder(lengths: Sequence[int], *, maximum: int) -> Ladder:
    """Makes the ladder of these lengths, with the model's maximum as the last.

    Raises:
        ValueError: They do not ascend, one is over the maximum, or one below it is no multiple of
            LENGTH_MULTIPLE.
    """
    ladder = Ladder(tuple(lengths))
    for length in lengths:
        if length > maximum:
            raise ValueError(f"must be at most {maximum}, the model's maximum; got {length}")
        if length % LENGTH_MULTIPLE and length != maximum:
            raise ValueError(
                f"must be multiples of {LENGTH_MULTIPLE}, but for the model's maximum; got {length}"
            )
    return ladder if ladder.maximum == maximum else Ladder((*lengths, maximum))


def doubling_ladder(maximum: int) -> Ladder:
    """Makes the ladder 1, 2, 4, … that ends at exactly `maximum`."""
    rungs = []
    rung = 1
    while rung < maximum:
        rungs.append(rung)
        rung *= 2
    return Ladder((*rungs, maximum))


@dataclass(frozen=True, kw_only=True)
class LaneLadders:
    """The ladders of the lane of one beam width.

    Attributes:
        beams: Beam width; 1 is no beam search.
        decode_rows: Requests decoded together; the last rung is the number of slots.
        decode_lengths: Attended cache lengths: a prompt's token takes one place, a step `beams`.
    """

    beams: int
    decode_rows: Ladder
    decode_lengths: Ladder


@dataclass(frozen=True, kw_only=True)
class EncoderLadders:
    """The ladders of a model's encoder.

    Attributes:
        lengths: Padded source lengths, in places.
        rows: Sources read together, as far as `batch_tokens` allows.
        batch_tokens: Most padded places of an encode of several sources.
        has_whole_source: Whether decoding always has the caches of a source of the last length;
            else, of a cache's length, which must be enough for the source then.
        align_lengths: Padded lengths of transcripts that are aligned with their sources, in tokens;
            None of a model that makes none.
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
        prefill_rows: Prompts read together, as far as `prefill_batch_tokens` allows.
        prefill_batch_tokens: Most padded tokens of a prefill of several prompts.
        prefill_piece: Tokens of a prompt that one call reads at most.
        lanes: Of each beam width, in order.
        encoder: Of its encoder; None if it has none.
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
            max_length: Most tokens of a sequence.
            slots: Requests without beam search that run at a time. Beam search of width B takes as
                much memory and time as B of them, so that its lane has fewer.
            prefill_piece: Tokens of a prompt that are read at a time.
            prefill_lengths: Chosen lengths below the maximum; where there are none, see above.
            decode_lengths: Likewise, in tokens of a sequence: beam search of width B takes as many
                places B times.
            max_source_length: Most places of a source; 0 without an encoder.
            has_whole_source: See `EncoderLadders`.
            encode_lengths: As `prefill_lengths`, of sources.
            has_transcript: Whether it makes transcripts, which can be aligned.

        Raises:
            ValueError: The chosen lengths do not make a ladder; the message says which.
        """
        if encode_lengths and not max_source_length:
            chosen = ",".join(map(str, encode_lengths))
            raise ValueError(f"encode-lengths: must be of a model with an encoder, got {chosen}")
        return cls(
            prefill_lengths=_prefill_lengths(max_length, prefill_piece, prefill_lengths),
            prefill_rows=doubling_ladder(slots),
            # No more than a piece: prompts that take several are read alone.
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
            ValueError: There is none. Requests are checked against it before.
        """
        for lane in self.lanes:
            if lane.beams >= beams:
                return lane
        raise ValueError(f"{beams} beams are more than the widest lane has, {self.lanes[-1].beams}")

    @property
    def usual_beams(self) -> int:
        """A width that is enough for most searches with beams: that of the widest lane but one."""
        return self.lanes[-2].beams

    def sources_together(self, length: int) -> Ladder:
        """How many sources of a rung `length` may be read together; one without an encoder."""
        if self.encoder is None:
            return Ladder((1,))
        return _together(self.encoder.rows, length, self.encoder.batch_tokens)

    def prompts_together(self, length: int) -> Ladder:
        """How many prompts of a rung `length` may be read together."""
        return _together(self.prefill_rows, length, self.prefill_batch_tokens)

    def places(self, *, prompt_tokens: int, new_tokens: int, beams: int, source_tokens: int) -> int:
        """Places that decoding a request takes at last, in a lane of `beams`.

        What a decode graph must have for the tokens, and beside them for the source. With an
        encoder it is the first step that reads the last token of a prompt.
        """
        if self.encoder is None:
            # The first token comes of the prompt, without a step.
            return prompt_tokens + beams * max(1, new_tokens - 1)
        tape = prompt_tokens - 1 + beams * new_tokens
        return tape if self.encoder.has_whole_source else max(tape, source_tokens)

    def read_tokens(self, prompt_tokens: int) -> int:
        """Tokens of a prompt that prefill reads: with an encoder, the first step reads the last."""
        return prompt_tokens if self.encoder is None else prompt_tokens - 1

    def encode(self, model: str, *, rows: int, source_tokens: int) -> Signature:
        """The tight cover of encoding `rows` sources of up to `source_tokens` places.

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
        """The tight cover of the prefill of `rows` prompts of up to `prompt_tokens` tokens."""
        length = self.prefill_lengths.cover(prompt_tokens)
        return Signature(
            model=model,
            kind=GraphKind.PREFILL,
            beams=1,
            rows=self.prompts_together(length).cover(rows),
            length=length,
        )

    def decode(self, model: str, *, rows: int, length: int, beams: int) -> Signature:
        """The tight cover of decoding `rows` requests that reach `length` places."""
        lane = self.lane(beams)
        return Signature(
            model=model,
            kind=GraphKind.DECODE,
            beams=lane.beams,
            rows=lane.decode_rows.cover(rows),
            length=lane.decode_lengths.cover(length),
        )

    def align(self, model: str, *, tokens: int) -> Signature:
        """The tight cover of aligning a transcript of `tokens` tokens, prompt and all.

        Transcripts are aligned one at a time: a call has as many tokens as pay.

        Raises:
            ValueError: The model makes none.
        """
        if self.encoder is None or self.encoder.align_lengths is None:
            raise ValueError(f"{model} makes no transcripts")
        length = self.encoder.align_lengths.cover(tokens)
        return Signature(model=model, kind=GraphKind.ALIGN, beams=1, rows=1, length=length)

    def first_align(self, model: str) -> Signature:
        """The align graph that is made first: it covers every transcript.

        Raises:
            ValueError: The model makes none.
        """
        return self.align(model, tokens=self.prefill_lengths.maximum)

    def first_encode(self, model: str) -> Signature:
        """The encode graph that a worker makes first: of one row, it covers every source.

        Raises:
            ValueError: The model has no encoder.
        """
        longest = self.encoder.lengths.maximum if self.encoder else 0
        return self.encode(model, rows=1, source_tokens=longest)

    def first_prefill(self, model: str) -> Signature:
        """The prefill graph that a worker makes first: of one row, it covers every prompt."""
        return self.prefill(model, rows=1, prompt_tokens=self.prefill_lengths.maximum)

    def first_decode(self, model: str, beams: int) -> Signature:
        """The decode graph that a lane makes first: of one row, it covers requests in turn."""
        longest = self.lane(beams).decode_lengths.maximum
        return self.decode(model, rows=1, length=longest, beams=beams)

    def first(self, model: str) -> list[Signature]:
        """The graphs that cover every request there can be: one of each kind, and of each lane."""
        decodes = (self.first_decode(model, lane.beams) for lane in self.lanes)
        aligns = [self.first_align(model)] if self.aligns else []
        return [*self.first_to_read(model), *decodes, *aligns]

    def first_to_read(self, model: str) -> list[Signature]:
        """Of these, those that read what decoding begins with."""
        encodes = [self.first_encode(model)] if self.encoder else []
        return [*encodes, self.first_prefill(model)]

    def tight(self, signature: Signature) -> Signature:
        """The tight cover of a signature, which may be one of other ladders.

        Raises:
            ValueError: These reach less far in one dimension.
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
        """Every signature there can be for a model."""
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
