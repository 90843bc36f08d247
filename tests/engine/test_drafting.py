"""A draft model proposes tokens, and every run gets the same tokens as without one."""

import itertools
import json
import random
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.engine import CHECKPOINTS, Bench, Collected, few_rungs
from shaperouter_service.compile_cache import CompileCache
from shaperouter_service.decoding import MAX_PROPOSALS, BySource
from shaperouter_service.errors import StartupError
from shaperouter_service.graphs import cache_key
from shaperouter_service.models import load_model
from shaperouter_service.worker.speculation import ProposalLimits

# A model that drafts for itself is always right. The others are wrong, and have fewer tokens or
# more, other positions, and other heads.
DRAFTS = {"gpt2-untied": "gpt2-untied", "llama": "opt-pre", "gemma3": "mistral"}
ALIKE = "gpt2-untied"
PROMPT = [*range(30, 60), 3, 4, 5]

pytestmark = pytest.mark.usefixtures("native_kernels")


def _bench(cache: CompileCache, **options: Any) -> Bench:
    return Bench(
        {model: CHECKPOINTS[model] for model in DRAFTS},
        slots=3,
        ladders=few_rungs,
        compile_cache=cache,
        **options,
    )


@pytest.fixture(scope="module")
def off(kept_compilations: CompileCache) -> Bench:
    return _bench(kept_compilations)


@pytest.fixture(scope="module")
def on(kept_compilations: CompileCache) -> Iterator[Bench]:
    """An engine with draft models, which also proposes what runs repeat."""
    drafts = {model: CHECKPOINTS[draft] for model, draft in DRAFTS.items()}
    bench = _bench(kept_compilations, drafts=drafts, speculate="ngram", prefix_cache_bytes=10**6)
    yield bench
    assert not bench.defects


def _run(bench: Bench, model: str, prompt: Sequence[int] = PROMPT, **options: Any) -> Collected:
    run = bench.submit(model, prompt, **{"max_new_tokens": 40, "eos_token_ids": (), **options})
    run.wait()
    return run


def _counts(bench: Bench, model: str) -> tuple[BySource, BySource]:
    lane = bench.parts.lanes[model, 1]
    return lane.proposed_tokens, lane.accepted_tokens


OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"do_sample": True, "seed": 1},
    {"do_sample": True, "seed": 2, "temperature": 0.7, "top_p": 0.8},
    {"repetition_penalty": 1.3, "logprobs": 2},
    {"no_repeat_ngram_size": 2, "do_sample": True, "seed": 3},
    {"min_new_tokens": 20, "eos_token_ids": tuple(range(8))},
)


@pytest.mark.parametrize("model", DRAFTS)
def test_tokens_are_the_same_with_and_without_a_draft_model(
    on: Bench, off: Bench, model: str
) -> None:
    expected = [_run(off, model, **options).token_ids for options in OPTIONS]
    assert [_run(on, model, **options).token_ids for options in OPTIONS] == expected
    # All together, more rows than fit into one batch.
    runs = [
        on.submit(model, PROMPT, **{"max_new_tokens": 40, "eos_token_ids": (), **options})
        for options in OPTIONS
    ]
    for run in runs:
        run.wait()
    assert [run.token_ids for run in runs] == expected
    assert _counts(on, model)[0].draft > 0
    assert _counts(off, model) == (BySource(0, 0), BySource(0, 0))


@pytest.mark.parametrize("options", [{}, {"do_sample": True, "seed": 5, "top_k": 20}])
def test_a_draft_model_that_equals_the_model_proposes_what_comes(
    on: Bench, options: dict[str, Any]
) -> None:
    before = _counts(on, ALIKE)
    _run(on, ALIKE, **options)
    proposed, accepted = (
        now.draft - then.draft for now, then in zip(_counts(on, ALIKE), before, strict=True)
    )
    assert accepted == proposed > 20


def test_a_draft_model_reads_what_was_proposed_by_others(on: Bench) -> None:
    circle = list(range(20, 27))
    biases = [((a, b), 60.0) for a, b in zip(circle, circle[1:] + circle[:1], strict=True)]
    start, _ = _counts(on, ALIKE)
    whole = _run(on, ALIKE, circle * 2, biases=biases, max_new_tokens=30)
    before = _counts(on, ALIKE)
    assert before[0].ngram > start.ngram
    # The next request leaves the circle, and only the draft model knows what follows. What it has
    # not read of the circle is not in the prefix cache either.
    rest = _run(on, ALIKE, [*circle * 2, *whole.token_ids, 60], max_new_tokens=20)
    assert rest.run.cached_prompt_tokens > 2 * len(circle)
    proposed, accepted = (
        now.draft - then.draft for now, then in zip(_counts(on, ALIKE), before, strict=True)
    )
    assert accepted == proposed >= MAX_PROPOSALS


def test_a_draft_model_that_is_wrong_is_soon_left_alone_and_asked_again_later(
    on: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Biases, which the draft model does not know, lead along a chain; then comes what it knows.
    chain = random.Random(0).sample(range(3, 97), k=40)
    biases = [(tuple(chain[place : place + 3]), 60.0) for place in range(len(chain) - 2)]
    calls: list[tuple[int, int, int]] = []
    observe = ProposalLimits.observe

    def record(
        limits: ProposalLimits, *, tokens: int, proposed: BySource, accepted: BySource
    ) -> None:
        calls.append((limits.draft.value, proposed.draft, accepted.draft))
        observe(limits, tokens=tokens, proposed=proposed, accepted=accepted)

    monkeypatch.setattr(ProposalLimits, "observe", record)
    run = _run(on, ALIKE, chain[:2], biases=biases, max_new_tokens=100)
    assert run.token_ids[: len(chain) - 2] == chain[2:]
    wrong = list(itertools.takewhile(lambda call: call[0] > 0, calls))
    assert len(wrong) < len(calls)
    for limit, proposed, accepted in wrong:
        assert proposed <= max(3 * limit, 4)
        assert accepted == 0
    assert sum(accepted for _, _, accepted in calls) > MAX_PROPOSALS


def test_a_beam_search_needs_no_draft_model(on: Bench, off: Bench) -> None:
    found = [_run(bench, ALIKE, num_beams=2, max_new_tokens=10) for bench in (on, off)]
    assert found[0].hypotheses == found[1].hypotheses


@pytest.mark.parametrize(
    ("draft", "options", "message"),
    [
        ("t5-tied", {}, "needs models without an encoder"),
        ("gpt2-untied", {"kernels": "off"}, "needs the native kernels of a CPU"),
        ("demo", {}, r"has no tokenizer; .*demo \(.*8192 tokens\) has id"),
    ],
)
def test_an_unfit_draft_model_is_refused(draft: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(StartupError, match=f"draft of model gpt2-untied: .*{message}"):
        Bench({ALIKE: CHECKPOINTS[ALIKE]}, slots=1, drafts={ALIKE: CHECKPOINTS[draft]}, **options)


def test_cached_graphs_are_those_of_the_same_draft_model(tmp_path: Path) -> None:
    model = CHECKPOINTS[ALIKE]
    other = Path(shutil.copytree(model, tmp_path / "other"))
    config = json.loads((other / "config.json").read_text(encoding="utf-8"))
    config["layer_norm_epsilon"] = 0.01
    (other / "config.json").write_text(json.dumps(config), encoding="utf-8")
    keys = [
        cache_key(load_model(ALIKE, model, "float32", packed=True, draft=draft)).name
        for draft in (None, model, other)
    ]
    assert len(set(keys)) == len(keys)


def test_a_draft_model_must_take_sequences_as_long_as_the_model_does(tmp_path: Path) -> None:
    shutil.copytree(CHECKPOINTS[ALIKE], tmp_path, dirs_exist_ok=True)
    for file in CHECKPOINTS["demo"].glob("tokenizer*"):
        shutil.copy(file, tmp_path)
    message = r"are 512 tokens; .* takes 128, so use --max-length 128"
    with pytest.raises(StartupError, match=message):
        Bench({"demo": CHECKPOINTS["demo"]}, slots=1, drafts={"demo": tmp_path})
