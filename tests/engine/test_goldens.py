"""Greedy output equals the reference implementation's, token for token, whatever the company."""

import random

import pytest

from harness.engine import SLOTS, Bench, Golden
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.routing.signatures import GraphKind
from shaperouter_service.worker.run import FinishReason

REASONS = {"eos": FinishReason.EOS, "length": FinishReason.LENGTH}


def test_alone_every_case_equals_the_reference(bench: Bench, golden: Golden) -> None:
    for case in golden.cases:
        collected = bench.submit_case(golden, case)
        reason = collected.wait()
        assert (case["name"], collected.token_ids) == (case["name"], case["token_ids"])
        assert reason is REASONS[case["finish_reason"]]


def test_the_cases_use_every_prompt_rung(golden: Golden) -> None:
    ladder = Ladders.default(max_length=golden.max_length, slots=SLOTS).prefill_lengths
    used = {ladder.cover(len(case["prompt_token_ids"])) for case in golden.cases}
    assert used == set(ladder.rungs)


def test_in_a_full_lane_with_runs_leaving_early_every_case_equals_the_reference(
    bench: Bench, golden: Golden, rng: random.Random
) -> None:
    # Twice as many runs as cases, in random order; every second one is cancelled after a few
    # tokens, so that the others join late and move between neighbours.
    cases = [(case, leaves) for case in golden.cases for leaves in (False, True)]
    rng.shuffle(cases)
    submitted = [(case, leaves, bench.submit_case(golden, case)) for case, leaves in cases]
    for case, leaves, collected in submitted:
        if leaves:
            collected.next()
            bench.engine.cancel(collected.run, golden.name)
        else:
            collected.wait()
            assert (case["name"], collected.token_ids) == (case["name"], case["token_ids"])


def test_a_run_that_joins_a_running_lane_changes_nobodys_answer(
    bench: Bench, golden: Golden
) -> None:
    longest = sorted(golden.cases, key=lambda case: -len(case["token_ids"]))[:SLOTS]
    first = [bench.submit_case(golden, case) for case in longest[:-1]]
    for collected in first:
        collected.next()
    late = bench.submit_case(golden, longest[-1])
    for case, collected in zip(longest, [*first, late], strict=True):
        collected.wait()
        assert collected.token_ids == case["token_ids"]


def test_every_signature_is_traced_and_compiled_exactly_once(bench: Bench, golden: Golden) -> None:
    bench.make_all_ready(golden.name)
    for case in golden.cases[:5]:
        bench.submit_case(golden, case).wait()
    snapshot = bench.engine.snapshot("test", "test")
    graphs = [graph for graph in snapshot.graphs if graph.signature.model == golden.name]
    assert graphs
    assert {(graph.traces, graph.compiles, graph.failures) for graph in graphs} == {(1, 1, 0)}


@pytest.mark.parametrize("kind", list(GraphKind))
def test_every_cover_gives_the_same_tokens(
    bench: Bench, golden: Golden, kind: GraphKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One request is run on each cover, which is made the only ready graph of its kind."""
    graphs = bench.make_all_ready(golden.name)
    case = max(
        (c for c in golden.cases if len(c["prompt_token_ids"]) + c["max_new_tokens"] <= 64),
        key=lambda c: len(c["token_ids"]),
    )
    table, ready = bench.engine._graphs, bench.engine._graphs.ready
    need = len(case["prompt_token_ids"]) + (case["max_new_tokens"] if kind == "decode" else 0)
    covers = [
        graph for graph in graphs if graph.signature.kind is kind and graph.signature.length >= need
    ]
    assert len(covers) > 2
    for cover in covers:
        monkeypatch.setattr(
            table, "ready", lambda m, k, b, c=cover: [c] if k is kind else ready(m, k, b)
        )
        collected = bench.submit_case(golden, case)
        collected.wait()
        assert {s for _, s in collected.run.uses if s.kind is kind} == {cover.signature}
        assert collected.token_ids == case["token_ids"]
