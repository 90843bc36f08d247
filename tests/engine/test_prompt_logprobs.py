"""Log-probabilities of prompts equal the reference's, on every graph and beside other runs."""

import random
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from harness.engine import CHECKPOINTS, Bench, Collected, Golden, few_rungs
from shaperouter_service.compile_cache import CompileCache
from shaperouter_service.generation.limits import MAX_TOP_LOGPROBS
from shaperouter_service.generation.run_events import FinishReason, PromptLogprobs
from shaperouter_service.routing.signatures import GraphKind

# Tolerance for the rounding of float32. Some random checkpoints magnify it: after these prompts the
# reference itself is up to 4.5e-4 from what it computes in float64 (phi3).
NOISE, MAGNIFIED_NOISE = 1e-4, 5e-4
STEADY = ("demo", "gpt2-odd-heads", "gpt2-untied", "gpt2-many-eos", "gpt2-bare", "llama", "bart")
# A decoder with absolute and one with rotary positions, in float32 and with many pieces.
PIECED = ("gpt2-untied", "llama")
PIECE = 16


@pytest.fixture(scope="module")
def in_pieces(kept_compilations: CompileCache) -> Iterator[Bench]:
    """An engine that reads 16 tokens a call."""
    bench = Bench(
        {name: CHECKPOINTS[name] for name in PIECED},
        slots=2,
        ladders=few_rungs,
        prefill_piece=PIECE,
        compile_cache=kept_compilations,
    )
    yield bench
    assert not bench.defects


def _submit(bench: Bench, golden: Golden, case: dict[str, Any], **changes: Any) -> Collected:
    options = {"max_new_tokens": 0, "prompt_logprobs": 2} | changes
    return bench.submit(golden.name, golden.prompt(case), source=golden.source(case), **options)


def _assert_equals(collected: Collected, golden: Golden, case: dict[str, Any]) -> None:
    """Waits for a run and compares it with its golden case."""
    collected.wait()
    tokens, found = golden.prompt(case), collected.prompt_logprobs
    assert [one.token_id for one in found] == tokens[1:]
    noise = NOISE if golden.name in STEADY else MAGNIFIED_NOISE
    assert [one.logprob for one in found] == pytest.approx(case["logprobs"], abs=noise)
    for one, expected in zip(found, case["top"], strict=True):
        assert [logprob for _, logprob in one.top] == pytest.approx(expected, abs=noise)
        # Bit for bit, so that callers see whether a token was the likeliest.
        if one.token_id in dict(one.top):
            assert dict(one.top)[one.token_id] == one.logprob


def _served(collected: Collected) -> set[GraphKind]:
    return {served.kind for _, served in collected.run.uses}


def test_prompts_are_scored_as_by_the_reference(
    benches: Mapping[str, Bench], golden: Golden
) -> None:
    for case in golden.score_cases:
        collected = _submit(benches[golden.name], golden, case)
        _assert_equals(collected, golden, case)
        assert collected.reason is FinishReason.LENGTH
        assert _served(collected) == {GraphKind.SCORE} | (
            {GraphKind.ENCODE} if golden.has_encoder else set()
        )


def test_prompts_are_scored_alike_in_full_lanes(
    benches: Mapping[str, Bench], golden: Golden, rng: random.Random
) -> None:
    bench = benches[golden.name]
    submitted = []
    for case in 3 * golden.score_cases:
        room = golden.max_length - len(golden.prompt(case))
        options = rng.choice([{}, {"max_new_tokens": min(4, room)}])
        submitted.append((_submit(bench, golden, case, **options), case))
        # Prompts that are not scored, in the same lane.
        submitted.append((bench.submit_case(golden, rng.choice(golden.cases)), None))
    for collected, case in submitted:
        if case is None:
            collected.wait()
            assert not collected.prompt_logprobs
        else:
            _assert_equals(collected, golden, case)


@pytest.mark.parametrize("name", PIECED)
def test_pieces_give_each_token_once(in_pieces: Bench, name: str) -> None:
    golden = Golden.read(name)
    for case in golden.score_cases:
        collected = _submit(in_pieces, golden, case)
        _assert_equals(collected, golden, case)
        pieces = [event for event in collected.seen if isinstance(event, PromptLogprobs)]
        assert len(pieces) == -(-(len(golden.prompt(case)) - 1) // PIECE)


def test_every_score_graph_gives_the_same_log_probabilities(
    benches: Mapping[str, Bench], thorough: Golden
) -> None:
    bench = benches[thorough.name]
    covers = [
        graph
        for graph in bench.make_all_ready(thorough.name)
        if graph.signature.kind is GraphKind.SCORE
    ]
    assert len(covers) >= 4
    for cover in covers:
        cases = [
            case
            for case in thorough.score_cases
            if len(thorough.prompt(case)) <= cover.signature.length
        ]
        with bench.only_ready(cover):
            with bench.admission_held(thorough.name):
                # Those of one length may be read together.
                submitted = [(_submit(bench, thorough, case), case) for case in 2 * cases]
            for collected, case in submitted:
                _assert_equals(collected, thorough, case)
                assert {served for _, served in collected.run.uses} == {cover.signature}


def test_scoring_changes_no_token(benches: Mapping[str, Bench], golden: Golden) -> None:
    bench = benches[golden.name]
    for case in [*golden.cases[:3], *golden.option_cases[:3]]:
        prompt, source = golden.prompt(case), golden.source(case)
        plain, scored = (
            bench.submit(golden.name, prompt, source=source, **golden.options(case), **scoring)
            for scoring in ({}, {"prompt_logprobs": 0})
        )
        assert plain.wait() is scored.wait()
        assert plain.token_ids == scored.token_ids
        assert len(scored.prompt_logprobs) == len(prompt) - 1


@pytest.mark.parametrize("scored", [0, 1, 20, 40])
def test_a_continued_run_scores_the_rest_of_its_prompt(in_pieces: Bench, scored: int) -> None:
    golden = Golden.read(PIECED[0])
    case = next(case for case in golden.score_cases if len(case["prompt_token_ids"]) == 65)
    prompt = case["prompt_token_ids"]
    whole = in_pieces.submit(golden.name, prompt, max_new_tokens=6, prompt_logprobs=1)
    whole.wait()
    rest = in_pieces.submit(
        golden.name,
        prompt,
        max_new_tokens=6,
        prompt_logprobs=1,
        scored=scored,
        generated_token_ids=whole.token_ids[:3],
    )
    rest.wait()
    assert rest.token_ids == whole.token_ids[3:]
    for found, expected in zip(rest.prompt_logprobs, whole.prompt_logprobs[scored:], strict=True):
        assert found.token_id == expected.token_id
        assert found.logprob == pytest.approx(expected.logprob, abs=NOISE)


def test_a_prompt_of_one_token_has_no_log_probability(
    benches: Mapping[str, Bench], golden: Golden
) -> None:
    bench = benches[golden.name]
    prompt = [golden.decoder_start_token_id] if golden.has_encoder else [3]
    source = [3, 5] if golden.has_encoder else []
    for new_tokens in (0, 2):
        collected = bench.submit(
            golden.name, prompt, source=source, max_new_tokens=new_tokens, prompt_logprobs=1
        )
        collected.wait()
        assert not collected.prompt_logprobs
        assert len(collected.token_ids) == new_tokens


def test_likeliest_tokens_are_as_many_as_asked_for(
    benches: Mapping[str, Bench], thorough: Golden
) -> None:
    """Also beside a prompt of the same call that asks for none."""
    bench, prompt = benches[thorough.name], [5, 6, 7]
    with bench.admission_held(thorough.name):
        submitted = [
            bench.submit(thorough.name, prompt, max_new_tokens=0, prompt_logprobs=count)
            for count in (0, 1, MAX_TOP_LOGPROBS)
        ]
    for collected, count in zip(submitted, (0, 1, MAX_TOP_LOGPROBS), strict=True):
        collected.wait()
        for one in collected.prompt_logprobs:
            assert len(one.top) == count
            assert [p for _, p in one.top] == sorted((p for _, p in one.top), reverse=True)
