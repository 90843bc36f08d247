"""Requests with a source: encoding it, and keeping it while the answer is generated."""

import math
from collections.abc import Iterator

import numpy as np
import pytest
import tensorflow as tf

from harness.device_calls import record_calls_left
from harness.engine import (
    CHECKPOINTS,
    Bench,
    Golden,
    assert_equals,
    cached,
    encoded,
    source_attention,
)
from harness.waiting import wait_until
from shaperouter_service.compile_cache import CompileCache
from shaperouter_service.decoding import Batch, EncodeProgram, Options, PrefillProgram
from shaperouter_service.decoding.attention import StepAttention
from shaperouter_service.graphs import Graph, GraphState
from shaperouter_service.models import load_model
from shaperouter_service.routing.signatures import GraphKind

MODEL = "t5-gated"


@pytest.fixture(scope="module")
def golden() -> Golden:
    return Golden.read(MODEL)


@pytest.fixture(scope="module")
def bench(kept_compilations: CompileCache) -> Iterator[Bench]:
    bench = Bench({MODEL: CHECKPOINTS[MODEL]}, slots=2, compile_cache=kept_compilations)
    yield bench
    assert not bench.defects


def _made(bench: Bench, kind: GraphKind, *, beams: int = 1) -> list[Graph]:
    """Compiles all graphs of a kind and beam width."""
    table = bench.parts.graphs
    graphs = [
        table.request_compile(signature, urgent=False)
        for signature in bench.parts.ladders[MODEL].signatures(MODEL)
        if (signature.kind, signature.beams) == (kind, beams)
    ]
    wait_until(lambda: all(graph.state is GraphState.READY for graph in graphs), timeout=240)
    return graphs


@pytest.mark.parametrize("kind", [GraphKind.ENCODE, GraphKind.PREFILL, GraphKind.DECODE])
def test_every_graph_gives_the_tokens_of_the_reference(
    bench: Bench, golden: Golden, kind: GraphKind
) -> None:
    ladders = bench.parts.ladders[MODEL]
    for cover in _made(bench, kind):
        with bench.only_ready(cover):
            length = cover.signature.length
            fitting = [
                case
                for case in golden.cases
                if length
                >= {
                    GraphKind.ENCODE: len(golden.source(case)),
                    GraphKind.PREFILL: len(golden.prompt(case)) - 1,
                    GraphKind.DECODE: ladders.positions(
                        prompt_tokens=len(golden.prompt(case)),
                        new_tokens=case["max_new_tokens"],
                        beams=1,
                        source_tokens=len(golden.source(case)),
                    ),
                }[kind]
            ]
            # The longest that fit: those that fill the graph.
            fitting.sort(key=lambda case: len(golden.source(case)) + len(golden.prompt(case)))
            submitted = [(bench.submit_case(golden, case), case) for case in fitting[-6:]]
            assert submitted
            for collected, case in submitted:
                assert_equals(collected, case)
                served = {s for _, s in collected.run.uses if s.kind is kind}
                assert served <= {cover.signature}


def test_a_prompt_of_one_token_is_read_by_the_first_step(bench: Bench, golden: Golden) -> None:
    case = next(case for case in golden.cases if len(golden.prompt(case)) == 1)
    collected = bench.submit_case(golden, case)
    assert_equals(collected, case)
    assert {served.kind for _, served in collected.run.uses} == {
        GraphKind.ENCODE,
        GraphKind.DECODE,
    }


def test_sources_of_one_rung_are_read_together(bench: Bench, golden: Golden) -> None:
    _made(bench, GraphKind.ENCODE)
    case = next(case for case in golden.cases if 8 < len(golden.source(case)) <= 16)
    # While this one runs, the others wait and are then read together.
    long = max(golden.cases, key=lambda case: len(golden.source(case)))
    with bench.admission_held(MODEL):
        cases = [long, case, case, case, case]
        submitted = [(bench.submit_case(golden, one), one) for one in cases]
    for collected, one in submitted:
        assert_equals(collected, one)
    rows = [s.rows for c, _ in submitted for _, s in c.run.uses if s.kind is GraphKind.ENCODE]
    assert max(rows) == 2


def test_the_padding_of_sources_and_prompts_is_counted(bench: Bench, golden: Golden) -> None:
    case = next(case for case in golden.cases if len(golden.prompt(case)) > 8)
    collected = bench.submit_case(golden, case)
    assert_equals(collected, case)
    run = collected.run
    (encode,) = (use for use in run.uses.values() if use.served.kind is GraphKind.ENCODE)
    assert run.padded_source_tokens == encode.served.length >= len(golden.source(case))
    (prefill,) = (use for use in run.uses.values() if use.served.kind is GraphKind.PREFILL)
    assert prefill.calls == math.ceil(run.read_tokens / 8)
    assert run.padded_prompt_tokens == 8 * prefill.calls


def test_the_time_left_to_read_is_that_of_the_source_and_the_prompt(
    bench: Bench, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = record_calls_left(monkeypatch, bench, bench.parts.lanes[MODEL, 1])
    case = next(case for case in golden.cases if len(golden.prompt(case)) > 8)
    assert_equals(bench.submit_case(golden, case), case)
    pieces = math.ceil((len(golden.prompt(case)) - 1) / 8)
    assert left == [*range(1 + pieces, 0, -1)]


def test_a_lane_reports_the_sources_and_prompts_still_to_be_read(
    bench: Bench, golden: Golden
) -> None:
    cases = [
        next(case for case in golden.cases if (len(golden.prompt(case)) > 1) is is_longer)
        for is_longer in (False, True)
    ]
    with bench.admission_held(MODEL):
        submitted = [bench.submit_case(golden, case) for case in cases]
        lanes = bench.engine.snapshot("w", "i").lanes
    (lane,) = (lane for lane in lanes if lane.beams == 1)
    assert (lane.backlog_sources, lane.backlog_prompts) == (2, 1)
    assert lane.backlog_source_tokens == sum(len(golden.source(case)) for case in cases)
    assert lane.backlog_prompt_tokens == len(golden.prompt(cases[1])) - 1
    for collected, case in zip(submitted, cases, strict=True):
        assert_equals(collected, case)


def test_the_record_has_sources_and_only_prompts_that_prefill_reads(
    bench: Bench, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources, prompts = [], []
    recorder = bench.parts.recorder
    monkeypatch.setattr(recorder, "source", lambda _, length: sources.append(length))
    monkeypatch.setattr(recorder, "prompt", lambda _, tokens: prompts.append(tokens))
    case = next(case for case in golden.cases if len(golden.prompt(case)) == 1)
    assert_equals(bench.submit_case(golden, case), case)
    assert (sources, prompts) == ([len(golden.source(case))], [])


@pytest.mark.parametrize("beams", [1, 3])
def test_each_entry_of_a_cache_has_the_position_of_its_token(beams: int) -> None:
    """Prompts of two and five tokens, then one entry for each hypothesis and step."""
    attend = StepAttention(
        [tf.zeros([2, 1, 1, 12, 4])] * 2,
        prompt_lengths=tf.constant([2, 5]),
        starts=tf.constant([2, 5]),
        visible=tf.ones([2, beams, 12], tf.bool),
    )
    steps = np.arange(12)
    expected = [np.where(steps < n, steps, n + (steps - n) // beams) for n in (2, 5)]
    np.testing.assert_array_equal(attend.positions, expected)


def test_padding_of_a_source_changes_nothing() -> None:
    model = load_model(MODEL, CHECKPOINTS[MODEL], "float32")
    source = [7, 3, 90, 14, 2]
    padded = tf.constant([[*source, 55, 66, 77]])
    lengths = tf.constant([5])
    alone = encoded(model.family, model.weights, tf.constant([source]), lengths, positions=5)
    others = encoded(model.family, model.weights, padded, lengths, positions=8)
    for found, right in zip(others, alone, strict=True):
        np.testing.assert_allclose(found[:, :, :, :5], right, atol=1e-5)


def test_positions_beyond_a_source_are_not_attended_to() -> None:
    model = load_model(MODEL, CHECKPOINTS[MODEL], "float32")
    attend = source_attention(model, [7, 3, 90])
    query = tf.random.stateless_normal([1, model.family.heads, 1, model.family.head_size], (1, 2))
    caches = attend._caches.caches
    assert [cache.shape[3] for cache in caches] == [3, 3]
    shorter = type(attend)(caches, tf.constant([2]))
    alone = type(attend)([cache[:, :, :, :2] for cache in caches], tf.constant([2]))
    np.testing.assert_allclose(shorter(1, query, 1.0), alone(1, query, 1.0), atol=1e-6)


@pytest.mark.parametrize("beams", [1, 4])
def test_a_source_moves_with_its_row(beams: int) -> None:
    model = load_model(MODEL, CHECKPOINTS[MODEL], "float32")
    first = Batch(model, rows=2, beams=beams, length=4, source_length=24)
    first.begin(1, [0], Options.of(max_new_tokens=3), source_length=17)
    rng = np.random.default_rng(0)
    for handle in first.caches.source:
        tf.raw_ops.AssignVariableOp(
            resource=handle, value=rng.normal(size=cached(handle).shape).astype(np.float32)
        )
    second = Batch(model, rows=3, beams=beams, length=64, source_length=64)
    second.copy_row(2, first, 1)
    assert second.state.source_lengths.tolist() == [0, 0, 17]
    for old, new in zip(first.caches.source, second.caches.source, strict=True):
        np.testing.assert_array_equal(cached(new)[2, :, :, :24], cached(old)[1])
        assert not cached(new)[2, :, :, 24:].any()


def test_a_source_is_compared_with_all_that_there_is_of_a_sequence() -> None:
    """The sequence is 0 4 5 so far; before the source's fourth token come 4 and 5, too."""
    model = load_model(MODEL, CHECKPOINTS[MODEL], "float32")
    batch = Batch(model, rows=2, beams=2, length=8, source_length=8)
    options = Options.of(max_new_tokens=5, encoder_no_repeat_ngram_size=3)
    source = [5, 4, 5, 6, 4, 5]
    batch.begin(1, [0], options, [4, 5], source_length=len(source), source=source)
    assert batch.state.source.tokens[1].tolist() == [*source, 0, 0]
    assert batch.state.source.matches[1].tolist() == [[0, 1, 0, 2, 0, 0, 0, 0]] * 2


def test_calls_without_results_wait_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    model = load_model(MODEL, CHECKPOINTS[MODEL], "float32")
    waits: list[str] = []
    monkeypatch.setattr(tf.test.experimental, "sync_devices", lambda: waits.append("waited"))
    encode = EncodeProgram("e", model, rows=1, length=16)
    prefill = PrefillProgram("p", model, rows=1, length=16, piece=16)
    for program in (encode, prefill):
        program.trace()
        program.compile()
    assert waits == ["waited", "waited"]
