"""Engines over the golden checkpoints, shared so that each graph is compiled once per session."""

import random
import shutil
from collections.abc import Iterator

import pytest

from harness.compiling import CACHE, CACHE_BYTES
from harness.engine import CHECKPOINTS, TINY, Bench, Golden, few_rungs
from shaperouter_service.compile_cache import CompileCache
from shaperouter_service.kernels import KernelsUnavailableError
from shaperouter_service.kernels.selfcheck import require

# Tested on every graph there can be; the others on those their cases need. Families differ in
# their forward pass alone: caches, padding, lanes and options are code that they share.
THOROUGH = ("gpt2-odd-heads",)


@pytest.fixture(scope="session", params=list(CHECKPOINTS))
def golden(request: pytest.FixtureRequest) -> Golden:
    return Golden.read(request.param)


@pytest.fixture(scope="session", params=THOROUGH)
def thorough(request: pytest.FixtureRequest) -> Golden:
    """A checkpoint all of whose graphs are compiled."""
    return Golden.read(request.param)


@pytest.fixture(scope="session", params=TINY)
def tiny(request: pytest.FixtureRequest) -> Golden:
    """A checkpoint with golden probabilities."""
    return Golden.read(request.param)


@pytest.fixture(scope="session")
def kept_compilations() -> CompileCache:
    """The compile cache of earlier sessions, for tests that are not about compiling."""
    cache = CompileCache.open(CACHE, max_bytes=CACHE_BYTES)
    assert cache is not None
    return cache


@pytest.fixture(scope="session")
def benches(kept_compilations: CompileCache) -> Iterator[dict[str, Bench]]:
    """The engine of each checkpoint."""
    yield from _benches(kept_compilations)


@pytest.fixture(scope="module")
def successors(kept_compilations: CompileCache) -> Iterator[dict[str, Bench]]:
    """The same engines of another worker, which have run nothing yet."""
    yield from _benches(kept_compilations)


def _benches(cache: CompileCache) -> Iterator[dict[str, Bench]]:
    thorough = {name: CHECKPOINTS[name] for name in THOROUGH}
    many_slots = Bench(thorough, slots=4, compile_cache=cache)
    others = {name: path for name, path in CHECKPOINTS.items() if name not in THOROUGH}
    few_graphs = Bench(others, slots=2, ladders=few_rungs, compile_cache=cache)
    yield {name: many_slots if name in THOROUGH else few_graphs for name in CHECKPOINTS}
    assert not many_slots.defects
    assert not few_graphs.defects


@pytest.fixture(scope="module")
def native_kernels() -> None:
    """Skips the tests if no kernels could be built here."""
    try:
        require()
    except KernelsUnavailableError as error:
        # With a compiler, they must be there.
        if shutil.which("c++") is None:
            pytest.skip(f"no C++ compiler, so no kernels: {error}")
        raise


@pytest.fixture
def rng() -> random.Random:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    return random.Random(seed)


def pytest_sessionfinish() -> None:
    for bench in Bench.all:
        bench.stop_compiling()
