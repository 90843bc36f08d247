"""Options are tensors: they change the results of their request and nothing else."""

import functools
import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from harness.engine import Bench, Collected, Golden, last_logits
from harness.statistics import P_VALUE_FLOOR, p_value
from shaperouter_service.decoding.ngrams import count_matches
from shaperouter_service.decoding.options import ON_DEVICE, Options
from shaperouter_service.decoding.processors import process
from shaperouter_service.decoding.warpers import warp
from shaperouter_service.errors import InvalidRequestError
from shaperouter_service.generation.option import EarlyStopping, Kind, ModelLimit, Option
from shaperouter_service.generation.resolution import neutral_options
from shaperouter_service.generation.run_events import FinishReason
from shaperouter_service.generation.run_request import RunRequest
from shaperouter_service.models import load_model
from shaperouter_service.models.m2m100 import M2M100
from shaperouter_service.routing.snapshots import GraphState
from shaperouter_service.worker.run_requests import check
from shaperouter_service.worker.scheduler import LaneScheduler

BEAMS = (1, 2, 4, 8)
REQUESTS = 1000
# Of logits. In float32 the reference itself differs from its float64 by up to 2e-4, for the
# checkpoint that magnifies rounding most.
FLOAT32_NOISE = 3e-4
# A request of each kind of decoding; none ends before its last token.
KINDS: dict[str, dict[str, Any]] = {
    "greedy": {"repetition_penalty": 1.3, "no_repeat_ngram_size": 3},
    "sampling": {"do_sample": True, "temperature": 1.2, "top_k": 40, "top_p": 0.95, "seed": 7},
    "everything": {
        "do_sample": True,
        "seed": 2**62 + 3,
        "temperature": 0.9,
        "top_k": 50,
        "top_p": 0.9,
        "min_p": 0.01,
        "typical_p": 0.95,
        "epsilon_cutoff": 1e-4,
        "eta_cutoff": 1e-3,
        "repetition_penalty": 0.9,
        "no_repeat_ngram_size": 2,
        "forced_eos_token_id": 3,
        "biases": [((5,), 2.0), ((1, 2), -math.inf)],
    },
    "beams": {"num_beams": 3, "num_return_sequences": 3},
    "sampled beams": {"num_beams": 4, "do_sample": True, "seed": 11, "temperature": 1.5},
    "renormalized beams": {
        "num_beams": 4,
        "no_repeat_ngram_size": 1,
        "renormalize_logits": True,
    },
}
PROMPT = [9, 4, 77, 31, 9]
NEW_TOKENS = 24


def _submit(bench: Bench, model: str, kind: str, **changes: Any) -> Collected:
    prompt = changes.pop("prompt", PROMPT)
    settings = {"max_new_tokens": NEW_TOKENS} | KINDS[kind] | changes
    return bench.submit(model, prompt, **settings)


def _result(collected: Collected) -> list[list[int]]:
    collected.wait()
    found = [list(hypothesis.token_ids) for hypothesis in collected.hypotheses]
    return found or [collected.token_ids]


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def bench(benches: Mapping[str, Bench], thorough: Golden) -> Bench:
    bench = benches[thorough.name]
    bench.make_all_ready(thorough.name, BEAMS)
    return bench


# Options whose values must agree with others'.
AGREEING = ("max_new_tokens", "min_new_tokens", "num_beams", "logprobs", "do_sample")
# Larger values than these are as these.
LARGEST = 8


def _random_value(rng: random.Random, option: Option, vocab_size: int) -> Any:
    """A value of its range, or its neutral one half of the time."""
    if rng.random() < 0.5:
        return option.neutral
    if option.range is None:
        choices: dict[Kind, Callable[[], Any]] = {
            Kind.FLAG: lambda: rng.random() < 0.5,
            Kind.TOKEN: lambda: rng.randrange(vocab_size),
            Kind.TOKENS: lambda: rng.sample(range(vocab_size), rng.randint(1, option.max_items)),
            Kind.EARLY_STOPPING: lambda: rng.choice(list(EarlyStopping)),
        }
        return choices[option.kind]()
    low, high = option.range.low, option.range.high
    high = vocab_size if high is ModelLimit.VOCABULARY else LARGEST if high is None else high
    if option.kind is Kind.NUMBER:
        return rng.uniform(max(low, -LARGEST) + 1e-3, min(high, LARGEST) - 1e-3)
    return rng.randint(int(low), int(high))


def _random_options(rng: random.Random, vocab_size: int) -> dict[str, Any]:
    """Random options, each neutral half of the time."""
    num_beams = rng.choice([1, rng.randint(1, 8)])
    run = [rng.randrange(vocab_size) for _ in range(rng.randint(1, 8))]
    return {
        name: _random_value(rng, option, vocab_size)
        for name, option in ON_DEVICE.items()
        if name not in AGREEING
    } | {
        "max_new_tokens": rng.randint(1, 8),
        "min_new_tokens": rng.choice([0, rng.randint(1, 8)]),
        "do_sample": rng.random() < 0.5,
        "biases": rng.choice([[], [(run, rng.choice([-math.inf, -2.0, 3.0]))]]),
        "logprobs": rng.choice([None, 0, 1, 20]) if num_beams == 1 else rng.choice([None, 0]),
        "prompt_logprobs": rng.choice([None, None, 0, 1, 20]),
        "num_beams": num_beams,
        "num_return_sequences": rng.randint(1, num_beams),
    }


def test_a_thousand_requests_with_random_options_trace_and_compile_nothing(
    bench: Bench, thorough: Golden, rng: random.Random
) -> None:
    def counts() -> list[tuple[str, int, int]]:
        graphs = bench.engine.snapshot("test", "test").graphs
        return sorted(
            (str(graph.signature), graph.traces, graph.compiles)
            for graph in graphs
            if graph.state is not GraphState.COLD
        )

    vocab_size = len(thorough.probabilities[0]["probabilities"])
    before = counts()
    submitted = []
    for _ in range(REQUESTS):
        prompt = [rng.randrange(vocab_size) for _ in range(rng.choice([3, 16, 40]))]
        options = _random_options(rng, vocab_size)
        submitted.append((options, bench.submit(thorough.name, prompt, **options)))
    for options, collected in submitted:
        for token_ids in _result(collected):
            assert len(token_ids) <= options["max_new_tokens"]
            assert all(0 <= token < vocab_size for token in token_ids)
    assert counts() == before


def test_a_request_gets_the_same_tokens_beside_any_other_options(
    bench: Bench, thorough: Golden, kind: str, rng: random.Random
) -> None:
    alone = _result(_submit(bench, thorough.name, kind))
    vocab_size = len(thorough.probabilities[0]["probabilities"])
    for _ in range(3):
        company = [
            bench.submit(thorough.name, PROMPT[:2], **_random_options(rng, vocab_size))
            for _ in range(10)
        ]
        assert _result(_submit(bench, thorough.name, kind)) == alone
        for collected in company:
            collected.wait()


@pytest.mark.parametrize("steps", [1, 2, 3, 7])
def test_chunking_is_invisible(
    bench: Bench, thorough: Golden, kind: str, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = _result(_submit(bench, thorough.name, kind))
    monkeypatch.setattr(LaneScheduler, "chunk_steps", lambda *_: steps)
    assert _result(_submit(bench, thorough.name, kind)) == usual


def test_moving_to_other_rows_is_invisible(
    bench: Bench, thorough: Golden, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shorter runs are admitted with it and end while it runs, so its batch shrinks."""
    # Moving to a graph with fewer rows is always worth it.
    monkeypatch.setattr(bench.parts.costs, "step_seconds", lambda each: 1 + each.rows / 2)
    alone = _result(_submit(bench, thorough.name, kind))
    with bench.admission_held(thorough.name):
        before = [_submit(bench, thorough.name, kind, max_new_tokens=n) for n in (2, 5, 9)]
        last = _submit(bench, thorough.name, kind)
    assert _result(last) == alone
    for collected in before:
        collected.wait()
    rows = {s.rows for _, s in last.run.uses if s.kind == "decode"}
    assert len(rows) > 1 or "beams" in kind


@pytest.mark.parametrize("sequential", ["greedy", "sampling", "everything"])
@pytest.mark.parametrize("made", [1, 11, 23])
def test_continuing_from_a_prefix_gives_the_same_tokens(
    bench: Bench, thorough: Golden, sequential: str, made: int
) -> None:
    (whole,) = _result(_submit(bench, thorough.name, sequential))
    prompt = PROMPT + whole[:made]
    (rest,) = _result(
        _submit(bench, thorough.name, sequential, prompt=prompt, max_new_tokens=NEW_TOKENS - made)
    )
    assert rest == whole[made:]


def test_another_seed_gives_another_sample(bench: Bench, thorough: Golden) -> None:
    samples = {
        tuple(_result(_submit(bench, thorough.name, "sampling", seed=seed))[0]) for seed in range(8)
    }
    assert len(samples) == 8


def test_a_beam_search_does_not_depend_on_the_width_of_its_lane(
    bench: Bench, thorough: Golden
) -> None:
    found = [
        [
            _result(_submit(bench, thorough.name, kind, lane_beams=width))
            for kind in ("beams", "sampled beams")
        ]
        for width in (4, 8)
    ]
    assert found[0] == found[1]


def test_an_end_token_at_the_limit_ends_a_run_as_eos(bench: Bench, thorough: Golden) -> None:
    (whole,) = _result(_submit(bench, thorough.name, "greedy"))
    last = next(n for n, token in enumerate(whole) if token not in whole[:n] and n > 0)
    ended = _submit(
        bench, thorough.name, "greedy", max_new_tokens=last + 1, eos_token_ids=[whole[last]]
    )
    assert ended.wait() is FinishReason.EOS


# --- Against the reference's distributions -------------------------------------------------------


def test_log_probabilities_equal_the_reference(benches: Mapping[str, Bench], tiny: Golden) -> None:
    for case in tiny.logprob_cases:
        collected = benches[tiny.name].submit_case(tiny, case)
        collected.wait()
        assert collected.token_ids == case["token_ids"]
        for found, expected in zip(collected.logprobs, case["logprobs"], strict=True):
            assert found.token_id == expected["chosen"][0]
            assert found.logprob == pytest.approx(expected["chosen"][1], abs=FLOAT32_NOISE)
            assert [token for token, _ in found.top] == [token for token, _ in expected["top"]]
            for (_, logprob), (_, exact) in zip(found.top, expected["top"], strict=True):
                assert logprob == pytest.approx(exact, abs=FLOAT32_NOISE)


def test_beam_search_reports_the_log_probabilities_of_its_tokens(
    bench: Bench, thorough: Golden
) -> None:
    """Without penalties, the score of a hypothesis is their mean."""
    collected = _submit(bench, thorough.name, "beams", logprobs=0)
    collected.wait()
    for hypothesis in collected.hypotheses:
        logprobs = [token.logprob for token in hypothesis.logprobs]
        assert [token.token_id for token in hypothesis.logprobs] == list(hypothesis.token_ids)
        assert hypothesis.score == pytest.approx(sum(logprobs) / len(logprobs), rel=1e-5)


def test_sampling_draws_from_the_processed_distribution(bench: Bench, thorough: Golden) -> None:
    """Compares the case with all options by chi-square over requests of one token."""
    case = max(thorough.sampling_cases, key=lambda case: len(case["options"]))
    options = thorough.options(_sampled(case))
    drawn = [
        bench.submit(thorough.name, case["prompt_token_ids"], **options | {"seed": seed})
        for seed in range(800)
    ]
    tokens = np.array([_result(collected)[0][0] for collected in drawn])
    probabilities = np.array(case["probabilities"])
    assert set(tokens) <= set(np.flatnonzero(probabilities))
    assert p_value(tokens, probabilities) > P_VALUE_FLOOR


def _sampled(case: dict[str, Any]) -> dict[str, Any]:
    """The case as a request; Transformers samples from 50 tokens by default."""
    options = {"do_sample": True, "top_k": 50, "max_new_tokens": 1} | case["options"]
    return case | {"options": options}


@functools.cache
def _warped(*, is_native: bool) -> Any:
    return tf.function(functools.partial(warp, is_native=is_native), jit_compile=True)


class Scored(NamedTuple):
    """A sampling case and its scores before truncation.

    Attributes:
        case: The case.
        options: Its options, as tensors.
        scores: [1, V] scores after the last token of its prompt.
    """

    case: dict[str, Any]
    options: Options
    scores: tf.Tensor


@functools.cache
def _scored(name: str) -> Sequence[Scored]:
    """The sampling cases of a checkpoint that the reference computes here as in steps."""
    golden = Golden.read(name)
    model = load_model(name, golden.directory, "float32")
    found = []
    for case in golden.sampling_cases:
        if isinstance(model.family, M2M100) and model.family.pad_token_id in golden.prompt(case):
            continue  # The reference counts such positions in one way here and in another in steps.
        options = golden.options(_sampled(case))
        options.pop("num_return_sequences", None)
        record = tf.nest.map_structure(tf.constant, Options.of(**options))
        prompt = tf.constant([golden.prompt(case)])
        length = tf.constant([prompt.shape[1]])
        scores = process(
            last_logits(model, prompt, golden.source(case)),
            prompt,
            length,
            length,
            tf.constant([count_matches(golden.prompt(case))]),
            options=record,
            active=tf.constant([True]),
            is_native=False,
        )
        found.append(Scored(case, record, scores))
    return found


def test_processed_distributions_equal_the_reference(tiny: Golden, is_native: bool) -> None:
    for case, options, scores in _scored(tiny.name):
        warped = _warped(is_native=is_native)(scores, options, 1, tf.constant([True]))
        found = tf.nn.softmax(warped)[0].numpy()
        expected = np.array(case["probabilities"])
        assert ((found > 0) == (expected > 0)).all(), case["name"]
        np.testing.assert_allclose(found, expected, atol=1e-5, err_msg=case["name"])


def test_sampled_beams_draw_hypotheses_without_replacement(bench: Bench, thorough: Golden) -> None:
    """Hypotheses of one token: two are drawn in turn, and the likelier comes first."""
    case = thorough.probabilities[0]
    probabilities = np.array(case["probabilities"])
    drawn = [
        bench.submit(
            thorough.name,
            case["prompt_token_ids"],
            max_new_tokens=1,
            num_beams=2,
            num_return_sequences=2,
            do_sample=True,
            temperature=case["temperature"],
            seed=seed,
        )
        for seed in range(800)
    ]
    tokens = np.array([_result(collected)[0][0] for collected in drawn])
    # P(i, then j) = p_i p_j / (1 - p_i); the best of two is i if p_i is the larger.
    first = probabilities[:, None] * probabilities / (1 - probabilities[:, None])
    pairs = first + first.T
    likelier = probabilities[:, None] > probabilities
    best = np.where(likelier, pairs, 0.0).sum(axis=1)
    assert p_value(tokens, best) > P_VALUE_FLOOR


def test_a_worker_refuses_a_seed_over_63_bits(bench: Bench, thorough: Golden) -> None:
    options = neutral_options(
        max_new_tokens=1, num_beams=1, num_return_sequences=1, temperature=1.0, seed=-1
    )
    request = RunRequest(model=thorough.name, token_ids=[3], options=options)
    with pytest.raises(InvalidRequestError, match=r"options.seed: must be from 0 to \d+, got -1"):
        check(request, bench.engine.model(thorough.name))
