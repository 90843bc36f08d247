"""A source is encoded once for all its runs."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from harness.engine import GOLDENS, Bench, Collected, assert_equals
from harness.sounds import GoldenSounds
from harness.waiting import wait_until
from shaperouter_service.compile_cache import CompileCache
from shaperouter_service.routing.signatures import GraphKind
from shaperouter_service.worker.input_reader import EncodedSources
from shaperouter_service.worker.run import Ended

NAME = "whisper-uneven"


@pytest.fixture(scope="module")
def bench(kept_compilations: CompileCache) -> Iterator[Bench]:
    bench = Bench({NAME: GOLDENS / NAME}, slots=4, compile_cache=kept_compilations)
    yield bench
    assert not bench.defects


@pytest.fixture(scope="module")
def golden() -> GoldenSounds:
    return GoldenSounds.read(NAME)


def kinds(collected: Collected) -> list[GraphKind]:
    """The kinds of the graphs that served a run."""
    return [served.kind for _, served in collected.run.uses]


def case_of(golden: GoldenSounds, recipe: str, sound: int | None = None) -> dict[str, Any]:
    """A golden case of a recipe, and of a sound if one is given."""
    return next(
        case
        for case in golden.cases
        if case["name"].startswith(recipe) and sound in (None, case["sound"])
    )


def test_a_source_is_encoded_once_for_several_runs(bench: Bench, golden: GoldenSounds) -> None:
    greedy = case_of(golden, "greedy")
    key = b"a source, one run after the other"
    first = golden.submit_case(bench, greedy, source_key=key)
    assert_equals(first, greedy)
    assert GraphKind.ENCODE in kinds(first)
    for recipe in ("without timestamps", "beams"):
        case = case_of(golden, recipe, greedy["sound"])
        again = golden.submit_case(bench, case, source_key=key)
        assert_equals(again, case)
        assert GraphKind.ENCODE not in kinds(again)


def test_a_decoded_window_is_aligned_without_another_encode(
    bench: Bench, golden: GoldenSounds
) -> None:
    key = b"a source that is aligned"
    first = golden.submit(bench, 0, [91, 93], max_new_tokens=4, source_key=key)
    first.wait()
    tokens = golden.arrays["token_ids"].tolist()
    aligning = golden.submit(bench, 0, tokens, max_new_tokens=0, aligns=True, source_key=key)
    aligning.wait()
    assert kinds(aligning) == [GraphKind.ALIGN]
    end = aligning.seen[-1]
    assert isinstance(end, Ended)
    assert end.aligned is not None
    shares = np.exp(end.aligned.scores)
    shares /= shares.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(shares, golden.arrays["attentions"], atol=1e-5)


def test_runs_side_by_side_share_an_encode(bench: Bench, golden: GoldenSounds) -> None:
    case = case_of(golden, "greedy")
    key = b"a source, runs side by side"
    runs = [golden.submit_case(bench, case, source_key=key) for _ in range(3)]
    for run in runs:
        assert_equals(run, case)
    assert sum(GraphKind.ENCODE in kinds(run) for run in runs) == 1


def test_sources_without_a_key_are_encoded_again(bench: Bench, golden: GoldenSounds) -> None:
    case = case_of(golden, "greedy")
    for _ in range(2):
        run = golden.submit_case(bench, case)
        assert_equals(run, case)
        assert GraphKind.ENCODE in kinds(run)


def test_memory_of_sources_is_counted(bench: Bench, golden: GoldenSounds) -> None:
    run = golden.submit_case(bench, case_of(golden, "greedy"), source_key=b"a source to count")
    run.wait()
    lane = bench.parts.lanes[NAME, 1]
    wait_until(lambda: 0 < lane.encoded.size <= lane.cache_bytes)


def caches(size: int) -> Any:
    return SimpleNamespace(bytes=size)


def test_the_oldest_sources_are_dropped_but_never_the_newest() -> None:
    sources = EncodedSources(kept_bytes=100)
    for key in (b"a", b"b", b"c"):
        sources.keep(key, caches(50))
    assert (sources.take(b"a"), sources.size) == (None, 100)
    sources.keep(b"d", caches(500))
    assert (sources.take(b"b"), sources.take(b"c"), sources.size) == (None, None, 500)


def test_a_kept_source_is_taken_once() -> None:
    sources = EncodedSources()
    kept = caches(1)
    sources.keep(b"a", kept)
    assert sources.take(b"a") is kept
    assert sources.take(b"a") is None
