"""A run that another worker has begun continues with the same tokens."""

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from harness.engine import Bench, Collected, Golden, assert_equals
from shaperouter.v1 import worker_pb2
from shaperouter_service.errors import InvalidRequestError
from shaperouter_service.wire.run_requests import run_request_from_message
from shaperouter_service.worker.run import Ended
from shaperouter_service.worker.runner import Runner

MODEL = "gpt2-untied"
# Sampled requests in which every step depends on the earlier ones; none ends early.
SAMPLED: dict[str, dict[str, Any]] = {
    "sampled": {"do_sample": True, "temperature": 1.2, "top_k": 40, "top_p": 0.95, "seed": 7},
    "sampled with every option": {
        "do_sample": True,
        "seed": 2**62 + 3,
        "temperature": 0.9,
        "top_k": 50,
        "top_p": 0.9,
        "min_p": 0.01,
        "typical_p": 0.95,
        "repetition_penalty": 0.9,
        "no_repeat_ngram_size": 2,
        "min_new_tokens": 12,
        "biases": [((5,), 2.0), ((1, 2), -math.inf)],
    },
}
# Tokens that a worker generates before it is lost, and tokens in all.
CUTS, NEW_TOKENS = (1, 9, 23), 24


def _input(golden: Golden) -> tuple[list[int], list[int]]:
    """The longest prompt that leaves room for the new tokens, and the source of its case."""
    cases = [
        case for case in golden.cases if len(golden.prompt(case)) + NEW_TOKENS <= golden.max_length
    ]
    case = max(cases, key=lambda case: (len(golden.prompt(case)), len(golden.source(case))))
    return golden.prompt(case), golden.source(case)


def _assert_continues(
    bench: Bench,
    model: str,
    prompt: Sequence[int],
    expected: Sequence[int],
    *,
    first: int = 1,
    every: int = 1,
    **options: Any,
) -> None:
    """Cuts a run after each of its tokens, or after some of them, and generates the rest again."""
    rests = {
        cut: bench.submit(model, prompt, generated_token_ids=expected[:cut], **options)
        for cut in range(first, len(expected), every)
    }
    for cut, rest in rests.items():
        rest.wait()
        assert (cut, rest.token_ids) == (cut, list(expected[cut:]))


def test_greedy_cases_continue_after_any_number_of_tokens(
    benches: Mapping[str, Bench], golden: Golden
) -> None:
    # Each cut is a run of its own. To save time, a case is cut at every third token; its first cut
    # is after one, two or three tokens, in turn.
    for index, case in enumerate(golden.cases[::3]):
        _assert_continues(
            benches[golden.name],
            golden.name,
            golden.prompt(case),
            case["token_ids"],
            first=1 + index % 3,
            every=3,
            source=golden.source(case),
            **golden.options(case),
        )


# Families share the options; those with an encoder begin with other tokens.
@pytest.mark.parametrize("golden", ["gpt2-odd-heads", "t5-gated", "bart"], indirect=True)
def test_every_case_of_options_continues_after_any_number_of_tokens(
    benches: Mapping[str, Bench], golden: Golden
) -> None:
    for case in golden.option_cases:
        options = golden.options(case)
        if options.get("num_beams", 1) == 1:
            prompt, (sequence,) = golden.prompt(case), case["sequences"]
            options["source"] = golden.source(case)
            _assert_continues(
                benches[golden.name], golden.name, prompt, sequence["token_ids"], **options
            )


@pytest.mark.parametrize("kind", list(SAMPLED))
def test_sampling_continues_after_any_number_of_tokens(
    benches: Mapping[str, Bench], thorough: Golden, kind: str
) -> None:
    bench, options = benches[thorough.name], SAMPLED[kind] | {"max_new_tokens": 24}
    prompt = [9, 4, 77, 31, 9]
    whole = bench.submit(thorough.name, prompt, **options)
    whole.wait()
    assert len(whole.token_ids) == 24
    _assert_continues(bench, thorough.name, prompt, whole.token_ids, **options)


def test_a_run_continues_on_another_worker(
    benches: Mapping[str, Bench], successors: Mapping[str, Bench], golden: Golden
) -> None:
    _assert_continues_on(successors[golden.name], benches[golden.name], golden)


def test_a_sampled_run_continues_on_another_worker(
    benches: Mapping[str, Bench], successors: Mapping[str, Bench], thorough: Golden
) -> None:
    # Families share the sampling.
    name = thorough.name
    _assert_continues_on(successors[name], benches[name], thorough, **SAMPLED["sampled"])


def _assert_continues_on(other: Bench, first: Bench, golden: Golden, **sampling: Any) -> None:
    """Continues a run of one worker on another, after several numbers of tokens."""
    prompt, source = _input(golden)
    options = {"source": source, "max_new_tokens": NEW_TOKENS, "logprobs": 0} | sampling
    whole = first.submit(golden.name, prompt, **options)
    whole.wait()
    # They run beside each other, as do those of a lost worker.
    rests = {
        cut: other.submit(golden.name, prompt, generated_token_ids=whole.token_ids[:cut], **options)
        for cut in CUTS
    }
    for cut, rest in rests.items():
        rest.wait()
        assert (cut, rest.token_ids) == (cut, whole.token_ids[cut:])
        logprobs = [each.logprob for each in whole.logprobs[cut:]]
        assert [each.logprob for each in rest.logprobs] == pytest.approx(logprobs, abs=1e-4)


def test_a_beam_search_starts_again_on_another_worker(
    benches: Mapping[str, Bench], successors: Mapping[str, Bench], thorough: Golden
) -> None:
    case = next(case for case in thorough.option_cases if case["options"].get("num_beams", 1) > 1)
    lost = benches[thorough.name].submit_case(thorough, case)
    assert_equals(successors[thorough.name].submit_case(thorough, case), case)
    assert_equals(lost, case)


def test_log_probabilities_continue(benches: Mapping[str, Bench]) -> None:
    def submit(**changes: Any) -> Collected:
        collected = benches[MODEL].submit(MODEL, [3, 1, 4], max_new_tokens=9, logprobs=2, **changes)
        collected.wait()
        return collected

    whole = submit()
    rest = submit(generated_token_ids=whole.token_ids[:4])
    for continued, expected in zip(rest.logprobs, whole.logprobs[4:], strict=True):
        assert continued.token_id == expected.token_id
        assert continued.logprob == pytest.approx(expected.logprob, abs=1e-4)
        assert [token for token, _ in continued.top] == [token for token, _ in expected.top]


def test_log_probabilities_continue_with_the_same_bits(benches: Mapping[str, Bench]) -> None:
    """A small graph reads prompts of up to 48 tokens, and a large one continued runs."""
    bench, prompt = benches["demo"], list(range(40, 88))
    if not bench.parts.kernels:
        pytest.skip("without the native kernels, XLA's products differ between graphs")
    options: dict[str, Any] = {"max_new_tokens": 12, "logprobs": 2}
    whole = bench.submit("demo", prompt, **options)
    whole.wait()
    for cut in range(1, len(whole.token_ids)):
        rest = bench.submit("demo", prompt, generated_token_ids=whole.token_ids[:cut], **options)
        rest.wait()
        assert rest.logprobs == whole.logprobs[cut:]


def test_a_continued_run_is_timed_from_its_arrival_on_the_new_worker(
    benches: Mapping[str, Bench],
) -> None:
    rest = benches[MODEL].submit(MODEL, [3], max_new_tokens=9, generated_token_ids=[5, 6])
    rest.wait()
    timings = rest.run.timings
    assert isinstance(rest.seen[-1], Ended)
    assert timings.prefill_started <= timings.first_token <= timings.ended


@pytest.mark.parametrize(
    ("generated", "options", "message"),
    [
        ([1, 2, 3], {"max_new_tokens": 3}, r"must be from 0 to 2, got 3"),
        ([1, 97], {"max_new_tokens": 5}, r"must be from 0 to 96, got 97"),
        ([-1], {"max_new_tokens": 5}, r"must be from 0 to 96, got -1"),
        ([1], {"max_new_tokens": 5, "num_beams": 2}, "must be empty with beam search, got 1 id"),
        (
            [1, 7],
            {"max_new_tokens": 5, "eos_token_ids": [6, 7]},
            "must not contain an end token, got 7",
        ),
        (
            [7],
            {"max_new_tokens": 5, "min_new_tokens": 3, "eos_token_ids": [7]},
            "must not contain an end token, got 7",
        ),
    ],
    ids=["too many", "beyond the vocabulary", "negative", "beams", "ended", "ended too early"],
)
def test_invalid_continuations_are_refused(
    benches: Mapping[str, Bench], generated: list[int], options: dict[str, Any], message: str
) -> None:
    async def run() -> None:
        runner = Runner(benches[MODEL].engine, asyncio.get_running_loop())
        request = worker_pb2.RunRequest(
            model=MODEL,
            token_ids=[3],
            generated_token_ids=generated,
            options=worker_pb2.RunOptions(
                **{"num_beams": 1, "num_return_sequences": 1, "temperature": 1.0} | options
            ),
        )
        await runner.run(run_request_from_message(request), None, lambda _: None)

    with pytest.raises(InvalidRequestError, match=f"generated_token_ids: {message}"):
        asyncio.run(run())
