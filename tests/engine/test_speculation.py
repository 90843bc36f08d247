"""Every run gets the same tokens with proposals as without, to the last bit."""

import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from harness.engine import CHECKPOINTS, Bench, Collected, few_rungs
from shaperouter_service.compile_cache import CompileCache
from shaperouter_service.decoding import MAX_STEPS
from shaperouter_service.generation.run_events import FinishReason, NewTokens
from shaperouter_service.text.constraints import grammar_of

# Families that differ in positions, windows, caps and groups of heads.
DECODERS = ("gpt2-untied", "opt-pre", "llama", "gemma3", "mistral")
MODEL = DECODERS[0]
SLOTS = 3
# Tokens that follow each other in circles where a request has `CIRCLE`.
CYCLE = list(range(20, 31))
CIRCLE = [((one, after), 60.0) for one, after in zip(CYCLE, CYCLE[1:] + CYCLE[:1], strict=True)]

pytestmark = pytest.mark.usefixtures("native_kernels")


@pytest.fixture(scope="module")
def engines(kept_compilations: CompileCache) -> Iterator[dict[str, Bench]]:
    """Engines with and without proposals."""
    found = {
        speculate: Bench(
            {model: CHECKPOINTS[model] for model in DECODERS},
            slots=SLOTS,
            ladders=few_rungs,
            speculate=speculate,
            compile_cache=kept_compilations,
        )
        for speculate in ("off", "ngram")
    }
    yield found
    assert [bench.defects for bench in found.values()] == [[], []]


@pytest.fixture
def on(engines: dict[str, Bench]) -> Bench:
    return engines["ngram"]


@pytest.fixture
def off(engines: dict[str, Bench]) -> Bench:
    return engines["off"]


def _run(bench: Bench, prompt: Sequence[int], model: str = MODEL, **options: Any) -> Collected:
    run = bench.submit(model, prompt, **{"max_new_tokens": 24, **options})
    run.wait()
    return run


def _found(run: Collected) -> tuple[Any, ...]:
    """Everything that a caller can see of an answer.

    XLA adds up probabilities of the two kinds of graphs in orders of its own.
    """
    logprobs = [scored.logprob for scored in run.logprobs]
    return run.token_ids, run.reason, run.hypotheses, logprobs


def _assert_same(found: tuple[Any, ...], expected: tuple[Any, ...]) -> None:
    *others, logprobs = expected
    assert found == (*others, pytest.approx(logprobs, abs=1e-5))


def _counts(bench: Bench, model: str = MODEL) -> tuple[int, int]:
    lane = bench.parts.lanes[model, 1]
    return lane.proposed_tokens.ngram, lane.accepted_tokens.ngram


def _requests(rng: random.Random) -> list[dict[str, Any]]:
    """Texts that repeat themselves always, often and seldom, with options of all kinds."""
    sampled = {"do_sample": True, "seed": 11}
    kinds: tuple[dict[str, Any], ...] = (
        {},
        {"biases": CIRCLE},
        # Follows the circle with about one exception in four tokens.
        sampled | {"biases": [(run, 6.0) for run, _ in CIRCLE], "temperature": 1.1},
        sampled | {"biases": CIRCLE, "top_p": 0.9, "logprobs": 2},
        sampled | {"temperature": 1.3},
        {"repetition_penalty": 1.2, "biases": CIRCLE},
        {"no_repeat_ngram_size": 3, "biases": CIRCLE},
        {"min_new_tokens": 15, "eos_token_ids": (CYCLE[4],), "biases": CIRCLE},
    )
    requests = []
    for number in range(2 * len(kinds)):
        words = rng.choices(range(3, 90), k=rng.choice((4, 9, 30)))
        prompt = [*words, *CYCLE, *words, CYCLE[number % len(CYCLE)]]
        new_tokens = rng.choice((1, 2, 17, 40))
        requests.append(
            {"logprobs": 0, "max_new_tokens": new_tokens, "prompt": prompt}
            | kinds[number % len(kinds)]
        )
    return requests


@pytest.mark.parametrize("model", DECODERS)
def test_answers_are_the_same_with_and_without_proposals(on: Bench, off: Bench, model: str) -> None:
    rng = random.Random(model)
    requests = _requests(rng)
    alone = []
    for request in requests:
        run = off.submit(model, **request)
        run.wait()
        alone.append(_found(run))
    runs = []
    for request in requests:
        runs.append(on.submit(model, **request))
        stranger = on.submit(model, **(request | {"max_new_tokens": 30}))
        if rng.random() < 0.5:
            runs[-1].wait()
        on.engine.cancel(stranger.run, model)
    for run, expected in zip(runs, alone, strict=True):
        if run.reason is None:
            run.wait()
        _assert_same(_found(run), expected)
    proposed, accepted = _counts(on, model)
    assert 0 < accepted < proposed
    assert _counts(off, model) == (0, 0)


def test_a_text_that_repeats_its_prompt_takes_few_steps(on: Bench) -> None:
    proposed, accepted = _counts(on)
    run = _run(on, CYCLE * 2, biases=CIRCLE, max_new_tokens=33)
    assert run.token_ids == CYCLE * 3
    now_proposed, now_accepted = _counts(on)
    # Every proposal is accepted, and most tokens were proposed.
    assert now_accepted - accepted == now_proposed - proposed > 20


@pytest.mark.parametrize("place", range(len(CYCLE)))
def test_an_end_token_ends_a_text_wherever_it_is_among_proposals(on: Bench, place: int) -> None:
    run = _run(on, CYCLE * 2, biases=CIRCLE, eos_token_ids=(CYCLE[place],))
    assert (run.token_ids, run.reason) == (CYCLE[: place + 1], FinishReason.EOS)


@pytest.mark.parametrize("new_tokens", range(1, 12))
def test_a_text_never_exceeds_its_maximum(on: Bench, new_tokens: int) -> None:
    run = _run(on, CYCLE * 2, biases=CIRCLE, max_new_tokens=new_tokens)
    assert (run.token_ids, run.reason) == ((CYCLE * 2)[:new_tokens], FinishReason.LENGTH)


def test_a_text_can_fill_the_cache(on: Bench) -> None:
    prompt = CYCLE * 2
    room = on.engine.model(MODEL).max_length - len(prompt)
    run = _run(on, prompt, biases=CIRCLE, max_new_tokens=room)
    assert run.token_ids == (CYCLE * room)[:room]


def test_each_chunk_is_sent_when_it_is_made(on: Bench) -> None:
    run = _run(on, CYCLE * 2, biases=CIRCLE, max_new_tokens=40)
    chunks = [len(event.token_ids) for event in run.seen if isinstance(event, NewTokens)]
    assert sum(chunks) == 40
    assert max(chunks) <= MAX_STEPS


@pytest.mark.parametrize("cut", [1, 7, 23])
@pytest.mark.parametrize("do_sample", [False, True])
def test_a_run_continues_with_the_same_tokens_wherever_it_was_cut(
    on: Bench, off: Bench, cut: int, do_sample: bool
) -> None:
    options: dict[str, Any] = {
        "biases": [(run, 6.0) for run, _ in CIRCLE],
        "do_sample": do_sample,
        "seed": 5,
    }
    whole = _run(off, CYCLE * 2, **options)
    rest = _run(on, CYCLE * 2, generated_token_ids=whole.token_ids[:cut], **options)
    assert whole.token_ids[:cut] + rest.token_ids == whole.token_ids


def test_rows_that_speculate_share_a_batch_with_a_row_that_follows_a_grammar(
    kept_compilations: CompileCache,
) -> None:
    grammar = grammar_of("regex", r"[0-9a-z ]{12}", drops_first_space=False)
    constrained = {"prompt": CYCLE, "max_new_tokens": 24, "grammar": grammar}
    free = {"prompt": CYCLE * 2, "max_new_tokens": 24, "biases": CIRCLE}
    model = "demo"
    found = []
    for speculate in ("off", "ngram"):
        bench = Bench(
            {model: CHECKPOINTS[model]},
            slots=SLOTS,
            ladders=few_rungs,
            speculate=speculate,
            compile_cache=kept_compilations,
        )
        with bench.admission_held(model):
            runs = [bench.submit(model, **request) for request in (free, constrained, free)]
        for run in runs:
            run.wait()
        found.append([_found(run) for run in runs])
        assert not bench.defects
    for speculating, expected in zip(*reversed(found), strict=True):
        _assert_same(speculating, expected)


def test_proposals_trace_no_graph(on: Bench) -> None:
    _run(on, CYCLE * 2, biases=CIRCLE)
    graphs = on.parts.graphs.graphs()
    before = {graph.signature: graph.traces for graph in graphs}
    for length in range(2, 2 * len(CYCLE), 5):
        _run(on, (CYCLE * 2)[:length], biases=CIRCLE)
        _run(on, (CYCLE * 2)[:length], do_sample=True, seed=length)
    assert {graph.signature: graph.traces for graph in graphs} == before


def test_nothing_is_proposed_without_the_kernels(kept_compilations: CompileCache) -> None:
    bench = Bench(
        {MODEL: CHECKPOINTS[MODEL]},
        slots=1,
        ladders=few_rungs,
        speculate="ngram",
        kernels="off",
        compile_cache=kept_compilations,
    )
    run = _run(bench, CYCLE * 2, biases=CIRCLE)
    assert run.token_ids == (CYCLE * 3)[:24]
    assert _counts(bench) == (0, 0)
