"""Output equals the reference's, token for token, beside any other requests."""

import random
from collections.abc import Mapping

import pytest

from harness.engine import Bench, Golden, assert_equals, source_ladders
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.routing.signatures import GraphKind, Signature


def test_alone_every_greedy_case_equals_the_reference(
    benches: Mapping[str, Bench], golden: Golden
) -> None:
    for case in golden.cases:
        assert_equals(benches[golden.name].submit_case(golden, case), case)


# Families share the options, and all of them use all options in full lanes below.
@pytest.mark.parametrize("golden", ["gpt2-odd-heads", "t5-gated", "bart"], indirect=True)
def test_alone_every_case_of_options_equals_the_reference(
    benches: Mapping[str, Bench], golden: Golden
) -> None:
    for case in golden.option_cases:
        assert_equals(benches[golden.name].submit_case(golden, case), case)


def test_the_cases_use_every_rung_of_prompts_and_sources(golden: Golden) -> None:
    if golden.has_encoder:
        ladders = source_ladders(golden)
        used = {ladders.encoder.lengths.cover(len(golden.source(case))) for case in golden.cases}
        assert used == set(ladders.encoder.lengths.rungs)
        read = [ladders.read_tokens(len(golden.prompt(case))) for case in golden.cases]
    else:
        ladders = Ladders.default(max_length=golden.max_length, slots=1)
        read = [len(case["prompt_token_ids"]) for case in golden.cases]
    used = {ladders.prefill_lengths.cover(tokens) for tokens in read if tokens}
    assert used == set(ladders.prefill_lengths.rungs)


def test_every_case_equals_the_reference_in_full_lanes(
    benches: Mapping[str, Bench], golden: Golden, rng: random.Random
) -> None:
    # Twice as many runs as cases, in random order; every second one is cancelled when it begins,
    # so that the others join late and move to other rows.
    bench = benches[golden.name]
    cases = [
        (case, leaves) for case in golden.cases + golden.option_cases for leaves in (False, True)
    ]
    rng.shuffle(cases)
    submitted = [(case, leaves, bench.submit_case(golden, case)) for case, leaves in cases]
    for case, leaves, collected in submitted:
        if leaves:
            collected.next()
            bench.engine.cancel(collected.run, golden.name)
        else:
            assert_equals(collected, case)


def test_a_run_that_joins_a_lane_changes_no_answer(
    benches: Mapping[str, Bench], golden: Golden
) -> None:
    bench = benches[golden.name]
    *first, last = sorted(golden.cases, key=lambda case: -len(case["token_ids"]))[:4]
    running = [(bench.submit_case(golden, case), case) for case in first]
    running[0][0].next()
    running.append((bench.submit_case(golden, last), last))
    for collected, case in running:
        assert_equals(collected, case)


BEAMS = (1, 2, 4, 8)


def _shape(case: dict) -> tuple[int, int, int]:
    """Number of beams, of prompt tokens and of new tokens at most."""
    options = case.get("options") or case
    beams = options.get("num_beams", 1)
    return beams, len(case["prompt_token_ids"]), options["max_new_tokens"]


@pytest.mark.parametrize("beams", BEAMS)
def test_every_decode_cover_gives_the_same_tokens(
    benches: Mapping[str, Bench],
    thorough: Golden,
    beams: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Runs all covered cases on each graph of a lane as the only ready one."""
    bench = benches[thorough.name]
    graphs = bench.make_all_ready(thorough.name, BEAMS)
    covers = [
        graph
        for graph in graphs
        if graph.signature.kind is GraphKind.DECODE and graph.signature.beams == beams
    ]
    assert len(covers) >= 4
    own = {"name": "own", "prompt_token_ids": [7, 3, 9, 1, 5]}
    own["options"] = {"max_new_tokens": 5, "num_beams": beams, "num_return_sequences": beams}
    known = bench.submit_case(thorough, own)
    known.wait()
    own["sequences"] = [
        {"token_ids": list(found.token_ids), "finish_reason": found.finish_reason.name.lower()}
        for found in known.hypotheses
    ] or [{"token_ids": known.token_ids, "finish_reason": known.reason.name.lower()}]
    for cover in covers:
        # The shortest graphs of the narrowest lanes cover few of the golden cases.
        cases = [
            case
            for case in [*thorough.cases, *thorough.option_cases, own]
            if _fits(case, cover.signature)
        ]
        with bench.only_ready(cover):
            submitted = [(bench.submit_case(thorough, case), case) for case in cases]
            assert submitted
            for collected, case in submitted:
                assert_equals(collected, case)
                used = {s for _, s in collected.run.uses if s.kind is GraphKind.DECODE}
                assert used == {cover.signature}


def _fits(case: dict, signature: Signature) -> bool:
    beams, prompt, new = _shape(case)
    narrowest = next(width for width in BEAMS if width >= beams)
    return (
        narrowest == signature.beams
        and prompt + signature.beams * max(1, new - 1) <= signature.length
    )


def test_every_prefill_cover_gives_the_same_tokens(
    benches: Mapping[str, Bench], thorough: Golden
) -> None:
    bench = benches[thorough.name]
    graphs = bench.make_all_ready(thorough.name, BEAMS)
    covers = [graph for graph in graphs if graph.signature.kind is GraphKind.PREFILL]
    case = min(thorough.cases, key=lambda case: len(case["prompt_token_ids"]))
    for cover in covers:
        with bench.only_ready(cover):
            collected = bench.submit_case(thorough, case)
            assert_equals(collected, case)
        used = {s for _, s in collected.run.uses if s.kind is GraphKind.PREFILL}
        assert used == {cover.signature}


def test_every_signature_is_compiled_exactly_once(
    benches: Mapping[str, Bench], thorough: Golden
) -> None:
    bench = benches[thorough.name]
    made = {graph.signature for graph in bench.make_all_ready(thorough.name, BEAMS)}
    for case in thorough.option_cases[:5]:
        assert_equals(bench.submit_case(thorough, case), case)
    snapshot = bench.engine.snapshot("test", "test")
    # Other graphs may be compiling, because earlier tests missed them.
    graphs = [graph for graph in snapshot.graphs if graph.signature in made]
    assert len(graphs) == len(made)
    # Traced and compiled, or loaded where an earlier run of the tests has kept what it compiled, or
    # traced here and loaded from tests that have compiled it meanwhile.
    found = {(graph.traces, graph.compiles, graph.loads, graph.failures) for graph in graphs}
    assert found <= {(1, 1, 0, 0), (0, 0, 1, 0), (1, 0, 1, 0)}
