"""Ladders: few rungs, bounded padding, exact at the maximum."""

import dataclasses
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shaperouter_service.routing.ladder import (
    LENGTH_MULTIPLE,
    Ladder,
    chosen_ladder,
    doubling_ladder,
    length_ladder,
)
from shaperouter_service.routing.ladders import (
    DECODE_MAX_PADDING,
    DECODE_SHORTEST,
    PREFILL_MAX_PADDING,
    PREFILL_SHORTEST,
    Ladders,
)
from shaperouter_service.routing.signatures import GraphKind

MAX_LENGTHS = st.integers(1, 200_000)
# Rungs are multiples of 8, so no ladder can be finer.
SHORTEST = st.integers(16, 256)
MAX_PADDING = st.floats(0.5, 4.0)


@pytest.mark.parametrize(
    ("maximum", "rungs"),
    [
        (1024, (16, 24, 32, 48, 64, 96, 144, 208, 312, 464, 688, 1024)),
        (512, (16, 24, 32, 40, 56, 80, 112, 160, 232, 344, 512)),
        (128, (16, 24, 32, 48, 64, 88, 128)),
        (100, (16, 24, 32, 48, 72, 100)),
        (17, (16, 17)),
        (16, (16,)),
        (10, (10,)),
        (1, (1,)),
    ],
)
def test_prefill_ladder(maximum: int, rungs: tuple[int, ...]) -> None:
    ladder = length_ladder(maximum, shortest=16, max_padding=0.5)
    assert ladder.rungs == rungs


@pytest.mark.parametrize(
    ("maximum", "rungs"),
    [
        (2048, (64, 128, 256, 512, 1024, 2048)),
        (1024, (64, 128, 256, 512, 1024)),
        (512, (64, 128, 256, 512)),
        (128, (64, 128)),
        (100, (64, 100)),
        (64, (64,)),
        (16, (16,)),
        (10, (10,)),
    ],
)
def test_decode_ladder(maximum: int, rungs: tuple[int, ...]) -> None:
    ladder = length_ladder(maximum, shortest=64, max_padding=1.0)
    assert ladder.rungs == rungs


@pytest.mark.parametrize(
    ("maximum", "rungs"),
    [
        (1, (1,)),
        (2, (1, 2)),
        (3, (1, 2, 3)),
        (8, (1, 2, 4, 8)),
        (12, (1, 2, 4, 8, 12)),
        (256, (1, 2, 4, 8, 16, 32, 64, 128, 256)),
    ],
)
def test_doubling_ladder(maximum: int, rungs: tuple[int, ...]) -> None:
    assert doubling_ladder(maximum).rungs == rungs


@given(maximum=MAX_LENGTHS, shortest=SHORTEST, max_padding=MAX_PADDING)
def test_length_ladders_strictly_ascend(maximum: int, shortest: int, max_padding: float) -> None:
    rungs = length_ladder(maximum, shortest=shortest, max_padding=max_padding).rungs
    assert list(rungs) == sorted(set(rungs))


@given(maximum=MAX_LENGTHS, shortest=SHORTEST, max_padding=MAX_PADDING)
def test_the_last_rung_is_the_exact_maximum(
    maximum: int, shortest: int, max_padding: float
) -> None:
    ladder = length_ladder(maximum, shortest=shortest, max_padding=max_padding)
    assert ladder.rungs[-1] == ladder.maximum == maximum


@given(maximum=MAX_LENGTHS, shortest=SHORTEST, max_padding=MAX_PADDING)
def test_the_first_rung_is_the_shortest_or_the_maximum(
    maximum: int, shortest: int, max_padding: float
) -> None:
    ladder = length_ladder(maximum, shortest=shortest, max_padding=max_padding)
    assert ladder.rungs[0] == min(shortest, maximum)


@given(
    maximum=MAX_LENGTHS,
    kind=st.sampled_from(
        [(PREFILL_SHORTEST, PREFILL_MAX_PADDING), (DECODE_SHORTEST, DECODE_MAX_PADDING)]
    ),
    data=st.data(),
)
def test_padding_above_the_first_rung_is_never_over_its_share(
    maximum: int, kind: tuple[int, float], data: st.DataObject
) -> None:
    shortest, max_padding = kind
    ladder = length_ladder(maximum, shortest=shortest, max_padding=max_padding)
    # The worst values are one above a rung; any other may be drawn, too.
    worst = st.sampled_from([rung + 1 for rung in ladder.rungs[:-1]] or [maximum])
    value = data.draw(worst | st.integers(min(ladder.rungs[0] + 1, maximum), maximum))
    assert ladder.cover(value) - value <= max_padding * value


@given(maximum=MAX_LENGTHS, shortest=SHORTEST, max_padding=MAX_PADDING)
def test_rungs_are_as_far_apart_as_the_share_allows(
    maximum: int, shortest: int, max_padding: float
) -> None:
    rungs = length_ladder(maximum, shortest=shortest, max_padding=max_padding).rungs
    for low, high in itertools.pairwise(rungs[1:]):
        worst_without = low - LENGTH_MULTIPLE + 1
        assert high - worst_without > max_padding * worst_without


@given(maximum=MAX_LENGTHS)
def test_inner_length_rungs_are_multiples_of_eight(maximum: int) -> None:
    for shortest, max_padding in ((16, 0.5), (64, 1.0)):
        ladder = length_ladder(maximum, shortest=shortest, max_padding=max_padding)
        assert all(rung % LENGTH_MULTIPLE == 0 for rung in ladder.rungs[:-1])


@given(maximum=st.integers(1, 10_000))
def test_doubling_never_pads_to_twice_the_rows(maximum: int) -> None:
    ladder = doubling_ladder(maximum)
    assert ladder.maximum == maximum
    assert all(high <= 2 * low for low, high in itertools.pairwise(ladder.rungs))


@given(rungs=st.sets(st.integers(1, 1000), min_size=1), data=st.data())
def test_the_cover_is_the_smallest_rung_that_is_at_least_the_value(
    rungs: set[int], data: st.DataObject
) -> None:
    ladder = Ladder(tuple(sorted(rungs)))
    value = data.draw(st.integers(1, ladder.maximum))
    assert ladder.cover(value) == min(rung for rung in rungs if rung >= value)


@given(rungs=st.sets(st.integers(1, 1000), min_size=1), over=st.integers(1, 1000))
def test_nothing_covers_a_value_over_the_last_rung(rungs: set[int], over: int) -> None:
    ladder = Ladder(tuple(sorted(rungs)))
    with pytest.raises(ValueError, match=f"{ladder.maximum + over} .* {ladder.maximum}"):
        ladder.cover(ladder.maximum + over)


@pytest.mark.parametrize("rungs", [(), (0, 1), (-8, 8), (8, 8), (16, 8), (8, 32, 16)])
def test_rungs_that_do_not_ascend_are_refused(rungs: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="ascending"):
        Ladder(rungs)


@pytest.mark.parametrize(
    ("lengths", "rungs"),
    [
        ((16, 24), (16, 24, 100)),
        ((16, 24, 100), (16, 24, 100)),
        ((100,), (100,)),
        ((8,), (8, 100)),
    ],
)
def test_a_chosen_ladder_ends_at_the_maximum(
    lengths: tuple[int, ...], rungs: tuple[int, ...]
) -> None:
    assert chosen_ladder(lengths, maximum=100).rungs == rungs


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ((), "ascending"),
        ((0, 8), "positive"),
        ((24, 16), "ascending"),
        ((16, 16), "ascending"),
        ((16, 104), "at most 100, the model's maximum; got 104"),
        ((16, 20), "multiples of 8, .* got 20"),
    ],
)
def test_a_chosen_ladder_is_checked(lengths: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        chosen_ladder(lengths, maximum=100)


@pytest.mark.parametrize("option", ["prefill-lengths", "decode-lengths"])
def test_the_error_of_a_chosen_ladder_names_its_option(option: str) -> None:
    chosen = {option.replace("-", "_"): (16, 104)}
    with pytest.raises(ValueError, match=f"{option}: must be at most 100"):
        Ladders.default(max_length=100, slots=2, **chosen)


def test_lengths_of_sources_are_refused_where_there_is_no_encoder() -> None:
    message = "encode-lengths: must be for a model with an encoder, got 16,24"
    with pytest.raises(ValueError, match=message):
        Ladders.default(max_length=100, slots=2, encode_lengths=(16, 24))


def test_chosen_lengths_are_the_rungs() -> None:
    ladders = Ladders.default(
        max_length=100, slots=2, prefill_lengths=(24,), decode_lengths=(32, 64)
    )
    assert ladders.prefill_lengths.rungs == (24, 100)
    for lane in ladders.lanes:
        assert lane.decode_lengths.rungs == (32 * lane.beams, 64 * lane.beams, 100 * lane.beams)


def test_lengths_of_one_kind_may_be_chosen_alone() -> None:
    usual = Ladders.default(max_length=100, slots=2)
    chosen = Ladders.default(max_length=100, slots=2, prefill_lengths=(24,))
    assert chosen.lanes == usual.lanes


WIDEST = 8


@given(
    max_length=st.integers(1, 8192),
    slots=st.integers(1, 256),
    beams=st.integers(1, WIDEST),
    data=st.data(),
)
def test_every_derived_signature_is_of_the_closed_set(
    max_length: int, slots: int, beams: int, data: st.DataObject
) -> None:
    ladders = Ladders.default(max_length=max_length, slots=slots)
    lane = ladders.lane(beams)
    signatures = ladders.signatures("gpt2")
    prompt_tokens = data.draw(st.integers(1, max_length), label="prompt_tokens")
    length = data.draw(st.integers(1, lane.decode_lengths.maximum), label="length")
    rows = data.draw(st.integers(1, lane.decode_rows.maximum), label="rows")
    together = ladders.rows(GraphKind.PREFILL, ladders.prefill_lengths.cover(prompt_tokens)).maximum
    prompts = data.draw(st.integers(1, together), label="prompts")
    prefill = ladders.prefill("gpt2", rows=prompts, prompt_tokens=prompt_tokens)
    assert prefill in signatures
    assert ladders.decode("gpt2", rows=rows, length=length, beams=beams) in signatures


@given(max_length=st.integers(1, 8192), slots=st.integers(1, 256))
def test_the_closed_set_is_the_product_of_the_ladders(max_length: int, slots: int) -> None:
    ladders = Ladders.default(max_length=max_length, slots=slots)
    signatures = ladders.signatures("gpt2")
    prefill = sum(
        len(ladders.rows(GraphKind.PREFILL, length).rungs)
        for length in ladders.prefill_lengths.rungs
    )
    decode = sum(
        len(lane.decode_lengths.rungs) * len(lane.decode_rows.rungs) for lane in ladders.lanes
    )
    score = prefill
    assert len(signatures) == len(set(signatures)) == prefill + decode + score


def test_prompts_are_scored_on_the_ladders_of_prefill() -> None:
    ladders = Ladders.default(max_length=1000, slots=6)
    for rows, tokens in ((1, 1), (3, 20), (1, 999)):
        prefill = ladders.prefill("gpt2", rows=rows, prompt_tokens=tokens)
        score = ladders.score("gpt2", rows=rows, prompt_tokens=tokens)
        assert score == dataclasses.replace(prefill, kind=GraphKind.SCORE)
        assert not score.covers(prefill)
    first = ladders.first_of("gpt2", GraphKind.SCORE)
    assert first in ladders.first("gpt2")
    assert first not in ladders.first_to_read("gpt2")


def test_a_full_prompt_and_a_full_lane_have_their_exact_signatures() -> None:
    ladders = Ladders.default(max_length=1000, slots=6)
    prefill = ladders.prefill("gpt2", rows=1, prompt_tokens=1000)
    decode = ladders.decode("gpt2", rows=6, length=1000, beams=1)
    assert (prefill.rows, prefill.length) == (1, 1000)
    assert (decode.rows, decode.length) == (6, 1000)


@pytest.mark.parametrize(("beams", "width"), [(1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (8, 8)])
def test_a_request_takes_the_narrowest_lane_that_has_its_beams(beams: int, width: int) -> None:
    ladders = Ladders.default(max_length=64, slots=8)
    assert ladders.lane(beams).beams == width
    assert ladders.decode("gpt2", rows=1, length=1, beams=beams).beams == width


@given(max_length=st.integers(1, 8192), slots=st.integers(1, 256))
def test_each_lane_has_room_for_every_sequence_and_no_more_hypotheses_than_slots(
    max_length: int, slots: int
) -> None:
    for lane in Ladders.default(max_length=max_length, slots=slots).lanes:
        assert lane.decode_lengths.maximum == lane.beams * max_length
        assert lane.decode_rows.maximum == max(1, slots // lane.beams)


@given(max_length=st.integers(1, 8192), slots=st.integers(1, 256))
def test_prompts_are_read_together_up_to_a_number_of_tokens(max_length: int, slots: int) -> None:
    ladders = Ladders.default(max_length=max_length, slots=slots)
    for length in ladders.prefill_lengths.rungs:
        rows = ladders.rows(GraphKind.PREFILL, length)
        assert rows.rungs[0] == 1
        assert rows.maximum == 1 or rows.maximum * length <= ladders.prefill_batch_tokens


def test_prompts_that_are_read_in_pieces_have_few_rungs() -> None:
    ladders = Ladders.default(max_length=1024, slots=1, prefill_piece=128)
    assert ladders.prefill_lengths.rungs == (16, 24, 32, 48, 64, 88, 128, 256, 512, 1024)


def test_beams_over_the_widest_lane_are_refused() -> None:
    ladders = Ladders.default(max_length=64, slots=2)
    with pytest.raises(ValueError, match="9 beams are more than the widest lane has, 8"):
        ladders.decode("gpt2", rows=1, length=1, beams=9)


# Models with an encoder.

SOURCES = Ladders.default(max_length=512, slots=4, prefill_piece=8, max_source_length=512)
WHOLE = Ladders.default(
    max_length=448, slots=4, prefill_piece=8, max_source_length=1500, has_whole_source=True
)


def test_sources_have_close_rungs_up_to_the_longest() -> None:
    assert SOURCES.encoder is not None
    assert SOURCES.encoder.lengths.rungs == (16, 24, 32, 40, 56, 80, 112, 160, 232, 344, 512)


def test_a_decoders_prompts_have_the_rungs_of_a_piece_and_of_caches() -> None:
    assert SOURCES.prefill_lengths.rungs == (8, 64, 128, 256, 512)


def test_a_source_that_is_always_whole_has_one_rung() -> None:
    assert WHOLE.encoder is not None
    assert WHOLE.encoder.lengths.rungs == (1500,)


def test_sources_are_read_together_as_far_as_a_call_may_take() -> None:
    signature = SOURCES.encode("m", rows=4, source_tokens=30)
    assert (signature.kind, signature.rows, signature.length) == (GraphKind.ENCODE, 4, 32)
    assert SOURCES.rows(GraphKind.ENCODE, 56).rungs == (1, 2)
    assert SOURCES.rows(GraphKind.ENCODE, 512).rungs == (1,)


def test_the_first_step_reads_the_last_token_of_a_decoders_prompt() -> None:
    assert SOURCES.read_tokens(1) == 0
    positions = SOURCES.positions(prompt_tokens=1, new_tokens=20, beams=4, source_tokens=5)
    assert positions == 80


def test_decoding_has_a_place_for_each_token_of_the_source() -> None:
    assert SOURCES.positions(prompt_tokens=1, new_tokens=20, beams=1, source_tokens=100) == 100
    assert WHOLE.positions(prompt_tokens=1, new_tokens=20, beams=1, source_tokens=1500) == 20


@given(
    beams=st.sampled_from([1, 2, 4, 8]),
    prompt_tokens=st.integers(1, 511),
    source_tokens=st.integers(1, 512),
    data=st.data(),
)
def test_the_first_graphs_cover_every_request_with_a_source(
    beams: int, prompt_tokens: int, source_tokens: int, data: st.DataObject
) -> None:
    new_tokens = data.draw(st.integers(1, 512 - prompt_tokens))
    positions = SOURCES.positions(
        prompt_tokens=prompt_tokens,
        new_tokens=new_tokens,
        beams=beams,
        source_tokens=source_tokens,
    )
    needed = [
        SOURCES.encode("m", rows=1, source_tokens=source_tokens),
        SOURCES.decode("m", rows=1, length=positions, beams=beams),
    ]
    if read := SOURCES.read_tokens(prompt_tokens):
        needed.append(SOURCES.prefill("m", rows=1, prompt_tokens=read))
    first = SOURCES.first("m")
    assert all(any(one.covers(signature) for one in first) for signature in needed)


def test_chosen_rungs_of_sources_end_at_the_longest() -> None:
    ladders = Ladders.default(
        max_length=64, slots=1, max_source_length=100, encode_lengths=(24, 64)
    )
    assert ladders.encoder is not None
    assert ladders.encoder.lengths.rungs == (24, 64, 100)


def test_a_wrong_rung_of_sources_names_its_option() -> None:
    with pytest.raises(ValueError, match="encode-lengths: must be at most 100"):
        Ladders.default(max_length=64, slots=1, max_source_length=100, encode_lengths=(128,))


def test_a_model_without_an_encoder_has_no_encode_graph() -> None:
    ladders = Ladders.default(max_length=64, slots=1)
    assert all(one.kind is not GraphKind.ENCODE for one in ladders.signatures("m"))
    with pytest.raises(ValueError, match="no graphs of kind encode"):
        ladders.encode("m", rows=1, source_tokens=1)


# Models that make transcripts.

HEARING = Ladders.default(
    max_length=448,
    slots=4,
    prefill_piece=32,
    max_source_length=1500,
    has_whole_source=True,
    has_transcript=True,
)


def test_transcripts_are_aligned_one_at_a_time() -> None:
    aligns = [one for one in HEARING.signatures("m") if one.kind is GraphKind.ALIGN]
    assert [(one.rows, one.length) for one in aligns] == [(1, 64), (1, 112), (1, 224), (1, 448)]
    assert HEARING.align("m", tokens=65) == aligns[1]
    assert HEARING.tight(aligns[2]) == aligns[2]
    assert all(one.kind is not GraphKind.SCORE for one in HEARING.signatures("m"))


def test_the_usual_search_of_transcripts_pads_no_beams() -> None:
    assert [HEARING.lane(beams).beams for beams in (3, 4, 5, 6)] == [4, 4, 5, 8]
    assert WHOLE.lane(5).beams == 8


def test_an_align_graph_is_among_those_that_cover_everything() -> None:
    assert HEARING.first_of("m", GraphKind.ALIGN) in HEARING.first("m")
    # Words are asked for by few.
    assert HEARING.first_of("m", GraphKind.ALIGN) not in HEARING.first_to_read("m")


def test_a_model_that_makes_no_transcripts_aligns_none() -> None:
    assert not WHOLE.aligns
    assert all(one.kind is not GraphKind.ALIGN for one in WHOLE.first("m"))
    with pytest.raises(ValueError, match="no graphs of kind align"):
        WHOLE.align("m", tokens=1)
