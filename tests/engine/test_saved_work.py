"""Runs move between engines that save work and engines that do not, and get the same tokens."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from harness.engine import CHECKPOINTS, Bench, Collected, few_rungs
from shaperouter_service.compile_cache import CompileCache
from shaperouter_service.generation.run_events import NewTokens
from shaperouter_service.worker.run import Ended, Failed

MODELS = ("gpt2-untied", "llama")
# Memory for what prompts share, of one that keeps most and one that keeps little, and proposals of
# the run's own tokens, and of a draft model, which is the model itself.
SETTINGS = (
    (0, "off", False),
    (10**7, "off", True),
    (0, "ngram", False),
    (10**5, "ngram", True),
)
FEW_WORDS = [((token,), 12.0) for token in range(20, 24)]

pytestmark = pytest.mark.usefixtures("native_kernels")


@pytest.fixture(scope="module")
def engines(kept_compilations: CompileCache) -> Iterator[list[Bench]]:
    """Engines with each of the settings; the first saves nothing."""
    found = [
        Bench(
            {model: CHECKPOINTS[model] for model in MODELS},
            slots=3,
            ladders=few_rungs,
            prefix_cache_bytes=size,
            speculate=speculate,
            drafts={model: CHECKPOINTS[model] for model in MODELS if drafts},
            compile_cache=kept_compilations,
        )
        for size, speculate, drafts in SETTINGS
    ]
    yield found
    assert [bench.defects for bench in found] == [[]] * len(SETTINGS)


def _requests(rng: random.Random) -> list[dict[str, Any]]:
    prefixes = [rng.choices(range(3, 90), k=48) for _ in range(2)]
    few: dict[str, Any] = {"biases": FEW_WORDS}
    sampled = {"do_sample": True, "seed": rng.randrange(1000)}
    kinds: tuple[dict[str, Any], ...] = (
        {},
        few,
        few | sampled | {"temperature": 0.8},
        few | {"no_repeat_ngram_size": 4},
        sampled | {"temperature": 1.3, "repetition_penalty": 1.2},
        few | {"num_beams": 2},
    )
    return [
        {
            "prompt": [*rng.choice(prefixes), *rng.choices(range(3, 90), k=rng.randrange(1, 9))],
            "max_new_tokens": rng.choice((1, 20, 60)),
        }
        | kinds[number % len(kinds)]
        for number in range(3 * len(kinds))
    ]


def _cut(run: Collected, chunks: int) -> bool:
    """Takes the next chunks of a run; returns whether it ended."""
    while chunks:
        match run.next():
            case Ended():
                return True
            case Failed(error):
                raise error
            case NewTokens():
                chunks -= 1
    return False


@pytest.mark.parametrize("model", MODELS)
def test_tokens_are_the_same_wherever_and_however_often_runs_move(
    engines: list[Bench], model: str
) -> None:
    rng = random.Random(model)
    requests = _requests(rng)
    expected = []
    for request in requests:
        run = engines[0].submit(model, **request)
        run.wait()
        expected.append(run.token_ids)
    found: list[list[int]] = [[] for _ in requests]
    unfinished = list(range(len(requests)))
    while unfinished:
        runs = {}
        for number in unfinished:
            bench = rng.choice(engines)
            run = bench.submit(model, generated_token_ids=found[number], **requests[number])
            runs[number] = bench, run
        for number, (bench, run) in runs.items():
            ended = _cut(run, rng.choice((0, 1, 1, 2, 5)))
            # As if its worker were lost: what it has not sent yet is lost, too. A search, which
            # sends nothing before its end, begins again.
            bench.engine.cancel(run.run, model)
            found[number] += run.token_ids
            if ended or len(found[number]) == requests[number]["max_new_tokens"]:
                unfinished.remove(number)
    assert found == expected
    # Which of the engines that save work got to save some depends on where runs were cut.
    accepted = [bench.parts.lanes[model, 1].accepted_tokens for bench in engines]
    assert accepted[0] == (0, 0)
    assert sum(counts.ngram for counts in accepted) > 0
    assert sum(counts.draft for counts in accepted) > 0
    copied = [
        report.hit_tokens
        for bench in engines
        for name, report in bench.parts.prefixes.reports.items()
        if name == model
    ]
    assert sum(copied) > 0
