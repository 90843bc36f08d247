"""Requests whose caches are in bfloat16."""

from collections.abc import Iterator

import numpy as np
import pytest
import tensorflow as tf

from harness.engine import CHECKPOINTS, GOLDENS, Bench, Collected, few_rungs
from harness.sounds import GoldenSounds
from shaperouter_service.compile_cache import CompileCache
from shaperouter_service.errors import StartupError
from shaperouter_service.models import NARROW_CACHES, DType, load_model, resolve_cache_dtype
from shaperouter_service.routing.signatures import GraphKind
from shaperouter_service.worker.run import Ended

SOUNDS = "whisper-uneven"
PROMPT = [*range(3, 36)]

pytestmark = pytest.mark.usefixtures("native_kernels")


def bench_of(*models: str, compile_cache: CompileCache, **settings: object) -> Bench:
    """An engine, with caches in bfloat16 unless the settings say otherwise."""
    return Bench(
        {name: CHECKPOINTS.get(name, GOLDENS / name) for name in models},
        slots=3,
        compile_cache=compile_cache,
        **{"kv_cache_dtype": "bfloat16"} | settings,
    )


@pytest.fixture(scope="module")
def bench(kept_compilations: CompileCache) -> Iterator[Bench]:
    found = bench_of(
        "gpt2-untied", "llama", "t5-gated", compile_cache=kept_compilations, ladders=few_rungs
    )
    yield found
    assert not found.defects


@pytest.mark.parametrize("model", ["gpt2-untied", "llama"])
@pytest.mark.parametrize("beams", [1, 2])
def test_every_graph_gives_the_same_tokens(bench: Bench, model: str, beams: int) -> None:
    found = []
    for cover in bench.make_all_ready(model, {1, beams}):
        signature = cover.signature
        decodes = signature.kind is GraphKind.DECODE and signature.beams == beams
        if decodes or (signature.kind is GraphKind.PREFILL and signature.length >= len(PROMPT)):
            with bench.only_ready(cover):
                run = bench.submit(model, PROMPT, max_new_tokens=20, num_beams=beams)
                run.wait()
                assert signature in {served for _, served in run.run.uses}
            found.append(run.token_ids)
    assert len(found) > 1
    assert found == found[:1] * len(found)


def test_work_that_is_saved_changes_no_token(bench: Bench, kept_compilations: CompileCache) -> None:
    saving = bench_of(
        "llama",
        compile_cache=kept_compilations,
        ladders=few_rungs,
        prefix_cache_bytes=10**7,
        speculate="ngram",
        drafts={"llama": CHECKPOINTS["llama"]},
    )
    prompts = [[*PROMPT, *PROMPT, token] for token in range(40, 44)]

    def run(bench: Bench) -> list[list[int]]:
        runs = [bench.submit("llama", prompt, max_new_tokens=30) for prompt in prompts]
        for each in runs:
            each.wait()
        return [each.token_ids for each in runs]

    expected = run(bench)
    assert run(saving) == expected
    assert run(saving) == expected
    assert not saving.defects


def test_they_take_half_of_the_memory() -> None:
    sizes = [
        load_model(
            "llama", CHECKPOINTS["llama"], "float32", packed=True, cache_dtype=dtype
        ).kv_cache_bytes_per_token
        for dtype in (NARROW_CACHES, None)
    ]
    assert sizes[0] == sizes[1] // 2


def test_sources_are_attended_to(bench: Bench) -> None:
    def probability(source: list[int]) -> float:
        run: Collected = bench.submit("t5-gated", [0], source=source, max_new_tokens=1, logprobs=0)
        run.wait()
        return run.logprobs[0].logprob

    assert probability([5, 9, 12, 1]) != probability([7, 30, 8, 1])


def test_transcripts_are_aligned_nearly_as_with_caches_in_float32(
    kept_compilations: CompileCache,
) -> None:
    golden = GoldenSounds.read(SOUNDS)
    tokens = golden.arrays["token_ids"].tolist()
    scores = []
    for dtype in ("bfloat16", "float32"):
        bench = bench_of(SOUNDS, compile_cache=kept_compilations, kv_cache_dtype=dtype)
        run = golden.submit(bench, 0, tokens, max_new_tokens=0, aligns=True)
        run.wait()
        end = run.seen[-1]
        assert isinstance(end, Ended)
        assert end.aligned is not None
        scores.append(end.aligned.scores)
    narrow, exact = scores
    assert not np.array_equal(narrow, exact)
    np.testing.assert_allclose(narrow, exact, atol=0.05)


@pytest.mark.parametrize("dtype", ["bfloat16", "int8", "int4"])
def test_caches_are_narrow_by_default_if_weights_have_fewer_bits_than_float32(
    dtype: DType,
) -> None:
    assert resolve_cache_dtype("auto", dtype, packed=True) == NARROW_CACHES
    assert resolve_cache_dtype("float32", dtype, packed=True) == tf.float32
    assert resolve_cache_dtype("auto", "float32", packed=True) == tf.float32


def test_without_the_kernels_caches_have_the_type_of_computations() -> None:
    assert resolve_cache_dtype("auto", "bfloat16", packed=False).name == "bfloat16"
    assert resolve_cache_dtype("bfloat16", "bfloat16", packed=False).name == "bfloat16"
    with pytest.raises(StartupError, match="kv-cache-dtype bfloat16 needs a CPU with the native"):
        resolve_cache_dtype("bfloat16", "float32", packed=False)
