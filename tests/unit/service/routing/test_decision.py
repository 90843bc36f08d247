"""The decision: the soonest end over all workers and covers, the same on every router."""

import dataclasses
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.routing import (
    LADDERS,
    MODEL,
    SLOTS,
    SOURCE_LADDERS,
    compiling,
    decode,
    encoding_worker,
    prefill,
    shape,
    worker,
)
from shaperouter_service.routing.choice import EQUAL_WITHIN, Decision, NoOption
from shaperouter_service.routing.decision import Option, RequestShape, decide
from shaperouter_service.routing.ladder import OverLadderError
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.routing.prefixes import BLOCK, block_keys, digest
from shaperouter_service.routing.rendezvous import named
from shaperouter_service.routing.signatures import GraphKind
from shaperouter_service.routing.snapshots import GraphState
from shaperouter_service.routing.views import GraphView, WorkerView

NOW = 1000.0
FIRST = (LADDERS.first_of(MODEL, GraphKind.PREFILL), LADDERS.first_decode(MODEL, 1))


def decided(request, workers) -> Decision[Option]:
    decision = decide(request, workers, NOW)
    assert not isinstance(decision, NoOption)
    return decision


def test_without_a_worker_there_is_no_option() -> None:
    assert isinstance(decide(shape(), [], NOW), NoOption)


def test_a_worker_with_a_ready_cover_goes_before_one_that_must_compile() -> None:
    cold, warm = worker("cold"), worker("warm", ready=FIRST)
    decision = decided(shape(), [cold, warm])
    assert decision.taken.worker == "warm"
    assert decision.taken.stall_seconds == 0
    assert decision.options[1].stall_seconds > 0


def test_the_tight_graph_goes_before_a_loose_one() -> None:
    loose = worker("loose", ready=FIRST)
    tight = worker("tight", ready=(*FIRST, prefill(16), decode(1, 64)))
    decision = decided(shape(prompt_tokens=10, new_tokens=50), [loose, tight])
    assert decision.taken.worker == "tight"
    assert (decision.taken.prefill, decision.taken.decode) == (prefill(16), decode(1, 64))


def test_a_loose_graph_goes_before_the_tight_one_behind_a_queue() -> None:
    tight = worker("tight", ready=(*FIRST, prefill(16), decode(1, 64)), active=4, queued=20)
    assert decided(shape(), [tight, worker("loose", ready=FIRST)]).taken.worker == "loose"


def test_a_request_is_expected_to_end_when_answers_like_it_do() -> None:
    limited = shape(new_tokens=400)
    likely = dataclasses.replace(limited, expected_tokens=40)
    whole, expected = (
        decided(each, [worker("a", ready=FIRST)]).taken for each in (limited, likely)
    )
    assert expected.decode == whole.decode
    assert expected.decode_seconds == pytest.approx(whole.decode_seconds * 39 / 399)


def test_a_graph_that_is_nearly_ready_counts_from_when_it_is() -> None:
    """A long generation begins on the loose graph and continues on the tight one."""
    loose = worker("a", ready=FIRST)
    soon = worker("b", ready=FIRST, graphs=[compiling(decode(1, 512), ready_at=NOW + 1)])
    request = shape(prompt_tokens=10, new_tokens=400)
    decision = decided(request, [loose, soon])
    by_worker = {option.worker: option for option in decision.options}
    assert by_worker["b"].stall_seconds == 0
    assert by_worker["b"].decode_seconds < by_worker["a"].decode_seconds


def test_cold_workers_leave_a_shape_to_the_one_that_hashing_names() -> None:
    workers = [worker(name) for name in ("a", "b", "c", "d")]
    for new_tokens in (10, 100, 200, 500):
        taken = decided(shape(new_tokens=new_tokens), workers).taken
        assert taken.worker == named(taken.tight, ["a", "b", "c", "d"])


def test_a_named_worker_that_is_busy_is_passed_over() -> None:
    request = shape()
    name = decided(request, [worker(n, ready=FIRST) for n in "abc"]).taken.worker
    workers = [worker(n, ready=FIRST, active=3 if n == name else 0) for n in "abc"]
    assert decided(request, workers).taken.worker != name


def test_a_wider_lane_serves_fewer_beams_when_only_it_is_ready() -> None:
    ready = (FIRST[0], LADDERS.first_decode(MODEL, 8))
    taken = decided(shape(num_beams=2), [worker("a", ready=ready)]).taken
    assert (taken.decode.beams, taken.stall_seconds) == (8, 0)


def test_a_wider_lane_serves_fewer_beams_when_it_will_be_ready_sooner() -> None:
    wide, narrow = (LADDERS.first_decode(MODEL, beams) for beams in (8, 2))
    view = worker("a", ready=FIRST[:1])
    for soon in (1.0, 1000.0):
        coming = GraphView(
            signature=wide, state=GraphState.COMPILING, ready_at=NOW + soon, retry_at=NOW
        )
        # Another thread is free for the narrow one.
        beside = dataclasses.replace(view, graphs={**view.graphs, wide: coming}, compile_threads=2)
        taken = decided(shape(num_beams=2), [beside]).taken
        assert taken.decode == (wide if soon == 1.0 else narrow)


def test_beam_search_never_runs_in_the_lane_without() -> None:
    widths = {o.decode.beams for o in decided(shape(num_beams=2), [worker("a")]).options}
    assert widths == {2}
    widths = {o.decode.beams for o in decided(shape(num_beams=1), [worker("a")]).options}
    assert widths == {1}


def test_a_request_that_must_queue_is_told_how_long() -> None:
    free = decided(shape(), [worker("a", ready=FIRST)]).taken
    full = decided(shape(), [worker("a", ready=FIRST, active=4, queued=4, tokens=800)]).taken
    assert free.queue_seconds == 0
    assert full.queue_seconds > 0


def test_a_worker_whose_ladders_are_too_short_is_no_option() -> None:
    """Pools, and versions beside each other in a rollout, may have other limits."""
    request = shape(prompt_tokens=700)
    short = dataclasses.replace(
        worker("short"), ladders={MODEL: Ladders.default(max_length=512, slots=SLOTS)}
    )
    decision = decided(request, [short, worker("long")])
    assert {option.worker for option in decision.options} == {"long"}
    with pytest.raises(OverLadderError, match="700 is over the last rung, 512"):
        decide(request, [short], NOW)


def test_an_option_says_in_words_what_it_is() -> None:
    text = str(decided(shape(), [worker("a")]).taken)
    assert text.startswith("a: m prefill 1x1024, m decode 1x1024, ")
    assert "s waiting for a graph" in text


# --- Properties ---------------------------------------------------------------------------------

STATES = st.sampled_from(list(GraphState))
ASKS = st.builds(
    shape,
    prompt_tokens=st.integers(1, 1000),
    new_tokens=st.integers(1, 24),
    num_beams=st.sampled_from([1, 1, 2, 3, 4, 8]),
)
SIGNATURES = st.sampled_from(LADDERS.signatures(MODEL))


@st.composite
def views(draw: st.DrawFn, name: str) -> WorkerView:
    graphs = {
        signature: GraphView(
            signature=signature,
            state=draw(STATES),
            ready_at=NOW + draw(st.floats(0, 20)),
            retry_at=NOW + draw(st.floats(-5, 20)),
        )
        for signature in draw(st.sets(SIGNATURES, max_size=8))
    }
    view = worker(
        name,
        active=draw(st.integers(0, 4)),
        queued=draw(st.integers(0, 10)),
        tokens=draw(st.integers(0, 500)),
    )
    for signature in draw(st.sets(SIGNATURES, max_size=4)):
        view.costs.measured(signature, draw(st.floats(0.0001, 1)))
    return dataclasses.replace(view, graphs=graphs)


FLEETS = st.tuples(views("a"), views("b"), views("c"))


@given(ASKS, FLEETS, st.randoms(use_true_random=False))
def test_equal_inputs_give_equal_decisions_in_whatever_order(
    request_, fleet, rng: random.Random
) -> None:
    shuffled = list(fleet)
    rng.shuffle(shuffled)
    assert decide(request_, fleet, NOW) == decide(request_, shuffled, NOW)


@given(ASKS, FLEETS)
def test_nobody_stalls_while_a_ready_cover_would_finish_sooner(request_, fleet) -> None:
    decision = decided(request_, fleet)
    without_stall = [o.total_seconds for o in decision.options if o.stall_seconds == 0]
    if decision.taken.stall_seconds > 0:
        soonest = min(without_stall, default=float("inf"))
        assert decision.taken.total_seconds <= (1 + EQUAL_WITHIN) * soonest


@given(ASKS, FLEETS)
def test_nothing_ends_noticeably_sooner_than_what_is_taken(request_, fleet) -> None:
    decision = decided(request_, fleet)
    soonest = min(option.total_seconds for option in decision.options)
    assert decision.taken.total_seconds <= (1 + EQUAL_WITHIN) * soonest


def _places(request_, beams: int) -> int:
    return LADDERS.positions(
        prompt_tokens=request_.prompt_tokens,
        new_tokens=request_.new_tokens,
        beams=beams,
        source_tokens=0,
    )


@given(ASKS, FLEETS)
def test_a_worker_with_covers_never_makes_its_request_stall(request_, fleet) -> None:
    for view in fleet:
        for option in decided(request_, [view]).options:
            places = _places(request_, option.decode.beams)
            covers = [
                any(s.length >= length for s in view.ready(MODEL, kind, beams))
                for kind, beams, length in (
                    (option.prefill.kind, 1, request_.prompt_tokens),
                    (option.decode.kind, option.decode.beams, places),
                )
            ]
            if all(covers):
                assert option.stall_seconds == 0


@given(ASKS, FLEETS)
def test_every_option_covers_the_request(request_, fleet) -> None:
    for option in decided(request_, fleet).options:
        assert option.prefill.length >= request_.prompt_tokens
        assert option.decode.length >= _places(request_, option.decode.beams)
        assert option.decode.beams >= request_.num_beams
        parts = (option.queue_seconds, option.stall_seconds, option.prefill_seconds)
        assert min(*parts, option.decode_seconds) >= 0


@given(ASKS, views("a"), st.integers(1, 50))
def test_more_load_never_makes_a_worker_look_sooner(request_, view, more: int) -> None:
    before = decided(request_, [view]).options
    lanes = {
        key: dataclasses.replace(
            lane, queued=lane.queued + more, backlog_tokens=lane.backlog_tokens + 10 * more
        )
        for key, lane in view.lanes.items()
        if lane.active_slots == lane.total_slots
    }
    after = decided(request_, [dataclasses.replace(view, lanes={**view.lanes, **lanes})]).options
    for beams in {option.decode.beams for option in before}:
        (one,) = (o.queue_seconds for o in before if o.decode.beams == beams)
        (other,) = (o.queue_seconds for o in after if o.decode.beams == beams)
        assert other >= one or other == pytest.approx(one)


# Models with an encoder.

SOURCE_FIRST = SOURCE_LADDERS.first(MODEL)


def _asked(prompt_tokens: int, source_tokens: int) -> RequestShape:
    return RequestShape(
        model=MODEL,
        prompt_tokens=prompt_tokens,
        new_tokens=20,
        num_beams=1,
        source_tokens=source_tokens,
    )


def test_a_source_is_encoded_and_a_prompt_of_one_token_needs_no_prefill() -> None:
    decision = decided(_asked(1, 30), [encoding_worker(SOURCE_FIRST)])
    assert decision.taken.graphs == [SOURCE_FIRST[0], SOURCE_LADDERS.first_decode(MODEL, 1)]
    assert decision.taken.prefill is None


def test_a_longer_prompt_of_a_decoder_is_read_too() -> None:
    decision = decided(_asked(12, 30), [encoding_worker(SOURCE_FIRST)])
    assert decision.taken.prefill == SOURCE_LADDERS.first_of(MODEL, GraphKind.PREFILL)
    shorter = decided(_asked(1, 30), [encoding_worker(SOURCE_FIRST)])
    assert shorter.taken.prefill_seconds < decision.taken.prefill_seconds


def test_a_decode_graph_without_a_place_for_the_source_is_not_taken() -> None:
    short = SOURCE_LADDERS.decode(MODEL, rows=1, length=64, beams=1)
    view = encoding_worker([*SOURCE_FIRST, short])
    for source_tokens, expected in ((64, short), (65, SOURCE_LADDERS.first_decode(MODEL, 1))):
        decision = decided(_asked(1, source_tokens), [view])
        assert decision.taken.decode == expected


def test_a_request_stalls_until_its_source_can_be_encoded() -> None:
    decision = decided(_asked(1, 30), [encoding_worker(SOURCE_FIRST[1:])])
    assert decision.taken.encode == SOURCE_FIRST[0]
    assert decision.taken.stall_seconds > 0


# Log-probabilities of prompts.

FIRST_SCORE = LADDERS.first_of(MODEL, GraphKind.SCORE)


def test_a_prompt_is_scored_in_place_of_being_prefilled() -> None:
    scoring = dataclasses.replace(shape(), scores=True)
    taken = decided(scoring, [worker("a", ready=(*FIRST, FIRST_SCORE))]).taken
    assert taken.graphs == [FIRST_SCORE, FIRST[1]]
    # A prefill graph covers no prompt to score.
    assert decided(scoring, [worker("a", ready=FIRST)]).taken.stall_seconds > 0


def test_a_prompt_that_is_only_scored_needs_no_decode_graph() -> None:
    scoring = dataclasses.replace(shape(), scores=True, new_tokens=0)
    (option,) = decided(scoring, [worker("a", ready=(FIRST_SCORE,))]).options
    assert (option.graphs, option.decode, option.beams) == ([FIRST_SCORE], None, 1)
    assert (option.stall_seconds, option.decode_seconds) == (0, 0)
    assert option.tight == LADDERS.score(MODEL, rows=1, prompt_tokens=scoring.prompt_tokens)


def test_a_decoders_prompt_of_one_token_needs_no_score_graph() -> None:
    view = encoding_worker(SOURCE_LADDERS.first(MODEL))
    scoring = dataclasses.replace(_asked(1, 30), scores=True, new_tokens=0)
    (option,) = decided(scoring, [view]).options
    assert option.graphs == [SOURCE_LADDERS.first_of(MODEL, GraphKind.ENCODE)]
    assert option.tight.kind is GraphKind.ENCODE


# Models that make transcripts.

HEARING_LADDERS = dataclasses.replace(
    SOURCE_LADDERS,
    encoder=dataclasses.replace(
        SOURCE_LADDERS.encoder,  # type: ignore[type-var]  # not None here
        align_lengths=SOURCE_LADDERS.lanes[0].decode_lengths,
    ),
)


def test_a_transcript_is_encoded_and_aligned_without_being_decoded() -> None:
    first = HEARING_LADDERS.first(MODEL)
    view = dataclasses.replace(encoding_worker(first), ladders={MODEL: HEARING_LADDERS})
    aligning = dataclasses.replace(_asked(100, 30), new_tokens=0, aligns=True)
    decision = decided(aligning, [view])
    assert decision.taken.graphs == [first[0], HEARING_LADDERS.first_of(MODEL, GraphKind.ALIGN)]
    assert decision.taken.tight == HEARING_LADDERS.align(MODEL, tokens=100)
    assert {option.decode.beams for option in decision.options} == {1}


def test_a_transcript_stalls_until_it_can_be_aligned() -> None:
    first = HEARING_LADDERS.first(MODEL)
    view = dataclasses.replace(encoding_worker(first[:-1]), ladders={MODEL: HEARING_LADDERS})
    aligning = dataclasses.replace(_asked(100, 30), new_tokens=0, aligns=True)
    assert decided(aligning, [view]).taken.stall_seconds > 0


# --- What workers have kept ----------------------------------------------------------------------

PROMPT = list(range(512))
KEYS = block_keys(MODEL, "", PROMPT)


def keeping(view: WorkerView, tokens: int) -> WorkerView:
    """The worker, having kept the first tokens of PROMPT."""
    kept = frozenset(map(digest, KEYS[: tokens // BLOCK]))
    return dataclasses.replace(view, prefixes={MODEL: kept})


def long_request(new_tokens: int = 30) -> RequestShape:
    request = shape(prompt_tokens=len(PROMPT), new_tokens=new_tokens)
    return dataclasses.replace(request, prefix_keys=KEYS)


@pytest.mark.parametrize("new_tokens", [1, 400])
def test_the_worker_that_has_kept_the_most_of_a_prompt_goes_first(new_tokens: int) -> None:
    workers = [
        worker("nothing", ready=FIRST),
        keeping(worker("some", ready=FIRST), 128),
        keeping(worker("most", ready=FIRST), 384),
        worker("nothing either", ready=FIRST),
    ]
    decision = decided(long_request(new_tokens), workers)
    assert decision.taken.worker == "most"
    saved = {option.worker: option.saved_seconds for option in decision.options}
    assert saved["most"] > saved["some"] > saved["nothing"] == 0


def test_a_queue_outweighs_what_a_worker_has_kept() -> None:
    busy = keeping(worker("busy", ready=FIRST, active=4, queued=40), 512)
    assert decided(long_request(), [busy, worker("idle", ready=FIRST)]).taken.worker == "idle"


def test_what_is_kept_of_another_scope_saves_nothing() -> None:
    request = dataclasses.replace(long_request(), prefix_keys=block_keys(MODEL, "other", PROMPT))
    option = decided(request, [keeping(worker("a", ready=FIRST), 512)]).taken
    assert option.saved_seconds == 0
