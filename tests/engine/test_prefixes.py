"""Runs that begin like earlier ones copy keys and values, and get the tokens of other runs."""

import random
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from harness.engine import CHECKPOINTS, Bench, Collected, few_rungs
from harness.tight import Case
from harness.waiting import TIMEOUT, wait_until
from shaperouter_service.compile_cache import CompileCache
from shaperouter_service.decoding.prefill import SHORT_PIECE
from shaperouter_service.generation.run_events import NewTokens
from shaperouter_service.graphs.graph import FEWEST_STEPS
from shaperouter_service.routing.prefixes import BLOCK, block_keys
from shaperouter_service.routing.signatures import GraphKind
from shaperouter_service.worker.run import Phase, Run, in_phase

# Families that differ in positions, windows and heads, and one with an encoder.
DECODERS = ("gpt2-untied", "opt-pre", "llama", "gemma3", "mistral", "phi3")
WITH_ENCODER = "t5-tied"
MODEL = DECODERS[0]
ROOM = 10**7
# Blocks of one model that fit: fewer than a single sequence has.
TINY = 5

pytestmark = pytest.mark.usefixtures("native_kernels")


@pytest.fixture(scope="module")
def engines(kept_compilations: CompileCache) -> Iterator[dict[str, Bench]]:
    """Engines that keep nothing, everything, and next to nothing."""
    found = {
        name: Bench(
            {model: CHECKPOINTS[model] for model in models},
            slots=3,
            ladders=few_rungs,
            prefix_cache_bytes=size,
            compile_cache=kept_compilations,
        )
        for name, size, models in (
            ("off", 0, (*DECODERS, WITH_ENCODER)),
            ("on", ROOM, (*DECODERS, WITH_ENCODER)),
            ("tiny", TINY * _block_bytes(), DECODERS),
        )
    }
    yield found
    assert [bench.defects for bench in found.values()] == [[], [], []]


@pytest.fixture(scope="module")
def together(kept_compilations: CompileCache) -> Iterator[Bench]:
    """An engine that reads two prompts in a call."""
    bench = Bench(
        {MODEL: CHECKPOINTS[MODEL]},
        slots=3,
        prefix_cache_bytes=ROOM,
        compile_cache=kept_compilations,
    )
    two = [Case(prompt_tokens=60, new_tokens=4)] * 2
    bench.make_tight(MODEL, two)
    yield bench
    assert not bench.defects


def _block_bytes() -> int:
    # Two layers of keys and values, 48 numbers each, and what the block costs besides.
    return BLOCK * 2 * 2 * 48 * 4 + 1024


@pytest.fixture
def on(engines: dict[str, Bench]) -> Bench:
    return engines["on"]


def _prompt(seed: int, length: int) -> list[int]:
    return random.Random(seed).choices(range(3, 90), k=length)


def _run(bench: Bench, prompt: list[int], **options: Any) -> Collected:
    run = bench.submit(MODEL, prompt, **{"max_new_tokens": 4, **options})
    run.wait()
    # The blocks of a run are cached after its end was sent.
    wait_until(lambda: not bench.parts.lanes[MODEL, 1].active_slots)
    bench.parts.device.wake()
    return run


def _found(run: Collected) -> tuple[Any, ...]:
    """Everything that a caller can see of an answer, to the last bit."""
    return run.token_ids, run.logprobs, run.hypotheses


def _requests(rng: random.Random, model: str) -> list[dict[str, Any]]:
    """Conversations, common beginnings and strangers, with options that read the prompt."""
    seeds = [rng.randrange(10**6) for _ in range(3)]
    options = (
        {},
        {"temperature": 1.3, "do_sample": True, "seed": 7},
        {"repetition_penalty": 1.4, "no_repeat_ngram_size": 2},
        {"prompt_logprobs": 2},
    )
    requests: list[dict[str, Any]] = []
    for number in range(14):
        length = rng.choice((15, 16, 17, 33, 48, 70))
        prompt = _prompt(seeds[number % 3], length)
        if number % 4 == 3:
            prompt = prompt[: length // 2] + _prompt(number, 20)
        request = {"prompt": prompt, "max_new_tokens": rng.choice((1, 5, 20)), "logprobs": 2}
        if model == WITH_ENCODER:
            prompt = [0, *prompt]
            request |= {"prompt": prompt, "source": _prompt(number, 9)}
        chosen = rng.choice(options)
        if not (model == WITH_ENCODER and "prompt_logprobs" in chosen):
            request |= chosen
        requests.append(request)
    return requests


@pytest.mark.parametrize("model", [*DECODERS, WITH_ENCODER])
def test_answers_are_the_same_to_the_last_bit_whatever_is_kept(
    engines: dict[str, Bench], model: str
) -> None:
    rng = random.Random(model)
    requests = _requests(rng, model)
    alone = []
    for request in requests:
        run = engines["off"].submit(model, **request)
        run.wait()
        alone.append((_found(run), run.prompt_logprobs))
    for name in ("on", "tiny"):
        if model not in engines[name].parts.ladders:
            continue
        bench, runs = engines[name], []
        for request in requests:
            runs.append(bench.submit(model, **request))
            stranger = bench.submit(model, **(request | {"max_new_tokens": 30}))
            if rng.random() < 0.5:
                runs[-1].wait()
            bench.engine.cancel(stranger.run, model)
        for run, expected in zip(runs, alone, strict=True):
            if run.reason is None:
                run.wait()
            assert (_found(run), run.prompt_logprobs) == expected
    hits = engines["on"].parts.prefixes.reports
    if model == WITH_ENCODER:
        assert model not in hits
    else:
        assert hits[model].hit_tokens > 0


def test_a_prompt_that_was_read_before_is_copied_but_for_its_last_block(on: Bench) -> None:
    prompt = _prompt(1, 3 * BLOCK + 5)
    assert _run(on, prompt).run.cached_prompt_tokens == 0
    assert _run(on, prompt).run.cached_prompt_tokens == 3 * BLOCK
    assert _run(on, prompt[: 2 * BLOCK + 1]).run.cached_prompt_tokens == 2 * BLOCK


def test_only_the_first_tokens_of_a_worker_tell_what_it_read(on: Bench) -> None:
    prompt = _prompt(14, 3 * BLOCK + 5)
    whole = _run(on, prompt, max_new_tokens=24)
    rest = _run(on, prompt, max_new_tokens=24, generated_token_ids=whole.token_ids[:12])
    for run in (whole, rest):
        first, *others = [each for each in run.seen if isinstance(each, NewTokens)]
        assert first.input_usage == run.run.input_usage
        assert {each.input_usage for each in others} <= {None}
    assert rest.run.input_usage.cached_prompt_tokens > 0
    assert rest.run.input_usage.padded_prompt_tokens > 0


def test_the_last_token_is_read_in_any_case(on: Bench) -> None:
    prompt = _prompt(2, 3 * BLOCK)
    _run(on, prompt)
    assert _run(on, prompt).run.cached_prompt_tokens == 3 * BLOCK - 1


@pytest.mark.parametrize(
    ("length", "shared", "copied"),
    [
        # A short piece reads all of it.
        (SHORT_PIECE, BLOCK, 0),
        # A whole piece reads what is left, as it reads all of it.
        (2 * BLOCK + SHORT_PIECE, BLOCK, 0),
        (2 * BLOCK + SHORT_PIECE, 2 * BLOCK, 2 * BLOCK),
    ],
)
def test_what_is_shared_is_copied_only_if_the_rest_takes_less_to_read(
    on: Bench, length: int, shared: int, copied: int
) -> None:
    seed = 1000 * length + shared
    common = _prompt(seed, shared)
    _run(on, common)
    hits = on.parts.prefixes.reports[MODEL].hit_tokens
    run = _run(on, [*common, *_prompt(seed + 1, length - shared)])
    assert run.run.cached_prompt_tokens == copied
    assert on.parts.prefixes.reports[MODEL].hit_tokens == hits + copied


def test_prompts_are_read_together_if_a_copy_would_save_nothing(on: Bench) -> None:
    prompt = _prompt(11, SHORT_PIECE)
    with on.admission_held(MODEL):
        runs = [on.submit(MODEL, prompt, max_new_tokens=4) for _ in range(2)]
    for run in runs:
        run.wait()
    assert [run.run.cached_prompt_tokens for run in runs] == [0, 0]
    assert runs[0].token_ids == runs[1].token_ids


def test_a_conversation_continues_after_its_last_answer(on: Bench) -> None:
    prompt = _prompt(3, 10)
    answer = _run(on, prompt, max_new_tokens=BLOCK)
    conversation = [*prompt, *answer.token_ids, *_prompt(4, 8)]
    # The newest token of the answer was never read.
    assert _run(on, conversation).run.cached_prompt_tokens == BLOCK


def test_a_run_continues_here_where_its_first_part_was_kept(on: Bench) -> None:
    prompt = _prompt(5, 40)
    whole = _run(on, prompt, max_new_tokens=24)
    rest = _run(on, prompt, max_new_tokens=24, generated_token_ids=whole.token_ids[:12])
    assert whole.token_ids[:12] + rest.token_ids == whole.token_ids
    assert rest.run.cached_prompt_tokens == 40


def test_equal_prompts_that_arrive_together_are_read_once(on: Bench) -> None:
    prompt = _prompt(6, 2 * BLOCK + 3)
    with on.admission_held(MODEL):
        runs = [on.submit(MODEL, prompt, max_new_tokens=4, logprobs=1) for _ in range(3)]
    for run in runs:
        run.wait()
    assert [run.run.cached_prompt_tokens for run in runs] == [0, 2 * BLOCK, 2 * BLOCK]
    assert _found(runs[1]) == _found(runs[2]) == _found(runs[0])


def test_a_prompt_is_copied_from_a_request_that_is_still_running(
    on: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane, prompt = on.parts.lanes[MODEL, 1], _prompt(12, 3 * BLOCK + 5)
    longer = [*prompt, *_prompt(13, 6)]
    real_decode, is_read, kept_while_running = lane.decode, threading.Event(), []

    def decode(runs: Sequence[Run]) -> bool:
        # The first request makes no step before the second one has been read.
        is_read.set()
        if len(in_phase(runs, Phase.DECODE)) < 2:
            return False
        kept_while_running.append(on.parts.prefixes.length(MODEL, block_keys(MODEL, "", prompt)))
        return real_decode(runs)

    hits = on.parts.prefixes.reports[MODEL].hit_tokens
    with monkeypatch.context() as patched:
        patched.setattr(lane, "decode", decode)
        first = on.submit(MODEL, prompt, max_new_tokens=4, logprobs=1)
        assert is_read.wait(TIMEOUT)
        second = on.submit(MODEL, longer, max_new_tokens=4, logprobs=1)
        wait_until(lambda: kept_while_running)
    for run in (first, second):
        run.wait()
    assert kept_while_running[0] == 0
    assert second.run.cached_prompt_tokens == 3 * BLOCK
    assert on.parts.prefixes.reports[MODEL].hit_tokens == hits + 3 * BLOCK
    assert _found(second) == _found(_run(on, longer, logprobs=1))


def test_beams_begin_with_what_was_read_without_beams(on: Bench, engines: dict[str, Bench]) -> None:
    prompt = _prompt(7, 2 * BLOCK + 3)
    _run(on, prompt)
    searches = [
        bench.submit(MODEL, prompt, max_new_tokens=6, num_beams=2) for bench in (on, engines["off"])
    ]
    for search in searches:
        search.wait()
    assert searches[0].run.cached_prompt_tokens == 2 * BLOCK
    assert searches[0].token_ids == searches[1].token_ids


def test_log_probabilities_of_a_prompt_need_all_of_it(on: Bench) -> None:
    prompt = _prompt(8, 2 * BLOCK + 3)
    _run(on, prompt)
    run = _run(on, prompt, prompt_logprobs=0)
    assert run.run.cached_prompt_tokens == 0
    assert len(run.prompt_logprobs) == len(prompt) - 1


def test_runs_of_another_scope_share_nothing(on: Bench) -> None:
    prompt = _prompt(9, 2 * BLOCK + 3)
    for scope, cached in (("a", 0), ("b", 0), ("a", 2 * BLOCK)):
        run = _run(on, prompt, prefix_scope=scope)
        assert run.run.cached_prompt_tokens == cached


def test_memory_stays_within_its_budget(engines: dict[str, Bench]) -> None:
    bench = engines["tiny"]
    for seed in range(5):
        _run(bench, _prompt(100 + seed, 3 * BLOCK))
    reports = bench.parts.prefixes.reports
    assert 0 < sum(report.bytes for report in reports.values()) <= bench.parts.prefixes.max_bytes
    assert reports[MODEL].evictions > 0


@pytest.mark.parametrize("holds", [False, True], ids=["kept", "running"])
def test_prompts_read_in_one_call_begin_with_what_they_share(
    engines: dict[str, Bench], together: Bench, *, holds: bool
) -> None:
    common = _prompt(20 + holds, 2 * BLOCK)
    first = together.submit(MODEL, [*common, 1], max_new_tokens=60 if holds else 1)
    first.next()
    if not holds:
        first.wait()
        wait_until(lambda: not together.parts.lanes[MODEL, 1].active_slots)
    prompts = [[*common, *_prompt(30 + own, 30 - own)] for own in range(2)]
    with together.admission_held(MODEL):
        runs = [together.submit(MODEL, prompt, max_new_tokens=4, logprobs=1) for prompt in prompts]
    for prompt, run in zip(prompts, runs, strict=True):
        run.wait()
        assert run.run.cached_prompt_tokens == 2 * BLOCK
        rows = [used.rows for _, used in run.run.uses if used.kind is GraphKind.PREFILL]
        assert rows == [2]
        alone = _run(engines["off"], prompt, logprobs=1)
        assert _found(run) == _found(alone)
    first.run.cancelled = True


def test_a_worker_that_reads_only_short_prompts_knows_what_reading_costs(together: Bench) -> None:
    ready = together.parts.graphs.ready(MODEL, GraphKind.PREFILL, beams=1)
    graph = max(ready, key=lambda graph: graph.signature.length)
    assert graph.signature.length > SHORT_PIECE
    with together.only_ready(graph):
        for seed in range(FEWEST_STEPS):
            _run(together, _prompt(40 + seed, 9))
    assert graph.best_step_seconds is not None


@pytest.mark.parametrize("paused", [False, True])
def test_a_cancelled_run_is_kept_unless_another_run_has_the_device_to_itself(
    on: Bench, monkeypatch: pytest.MonkeyPatch, *, paused: bool
) -> None:
    lane, prompt, dropped = on.parts.lanes[MODEL, 1], _prompt(50 + paused, 40), threading.Event()
    real_turn = lane.turn

    def cancel(runs: Sequence[Run]) -> bool:
        for run in in_phase(runs, Phase.DECODE):
            run.cancelled = True
        return False

    def turn() -> bool:
        if not run.run.cancelled:
            return real_turn()
        (lane.let_go if paused else real_turn)()
        dropped.set()
        return False

    # All of this happens in the device thread.
    monkeypatch.setattr(lane, "decode", cancel)
    with on.admission_held(MODEL):
        run = on.submit(MODEL, prompt, max_new_tokens=20)
        monkeypatch.setattr(lane, "turn", turn)
    assert dropped.wait(TIMEOUT)
    kept = on.parts.prefixes.length(MODEL, block_keys(MODEL, "", prompt))
    assert kept == (0 if paused else 2)


def test_reuse_traces_no_graph_and_copies_with_no_new_function(on: Bench) -> None:
    graphs = on.parts.graphs.graphs()
    before = {graph.signature: graph.traces for graph in graphs}
    for length in range(2 * BLOCK, 4 * BLOCK, 5):
        _run(on, _prompt(10, length))
    assert {graph.signature: graph.traces for graph in graphs} == before
