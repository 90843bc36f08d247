"""Engines over the golden checkpoints, shared so that each graph is compiled once per session."""

import ctypes
import random
import shutil
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from harness.compiling import CACHE, CACHE_BYTES
from harness.engine import CHECKPOINTS, TINY, Bench, Golden, few_rungs
from shaperouter_service.compile_cache import CompileCache
from shaperouter_service.kernels import KernelsUnavailableError
from shaperouter_service.kernels.selfcheck import require

# These are tested on every possible graph, the others on the graphs that their cases need. Families
# differ in their forward pass alone: caches, padding, lanes and options are code that they share.
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


class Benches(Mapping[str, Bench]):
    """An engine for each checkpoint, started when it is first asked for.

    TensorFlow never frees a compiled graph, so a process has no engine that its tests do not use.
    """

    def __init__(self, cache: CompileCache) -> None:
        self._cache = cache
        self._started: dict[str, Bench] = {}

    def __getitem__(self, name: str) -> Bench:
        if name not in self._started:
            settings: dict[str, Any] = {"slots": 2, "ladders": few_rungs}
            if name in THOROUGH:
                settings = {"slots": 4}
            model = {name: CHECKPOINTS[name]}
            self._started[name] = Bench(model, compile_cache=self._cache, **settings)
        return self._started[name]

    def __iter__(self) -> Iterator[str]:
        return iter(CHECKPOINTS)

    def __len__(self) -> int:
        return len(CHECKPOINTS)

    def check(self) -> None:
        """Raises an error if a device thread has failed."""
        assert not [name for name, bench in self._started.items() if bench.defects]


@pytest.fixture(scope="session")
def benches(kept_compilations: CompileCache) -> Iterator[Benches]:
    """The engine of each checkpoint."""
    benches = Benches(kept_compilations)
    yield benches
    benches.check()


@pytest.fixture(scope="module")
def successors(kept_compilations: CompileCache) -> Iterator[Benches]:
    """The same engines on another worker, which have run nothing yet."""
    benches = Benches(kept_compilations)
    yield benches
    benches.check()


@pytest.fixture(scope="module", autouse=True)
def _freed_memory() -> Iterator[None]:
    """Gives the memory back that compilations have freed: a third of a process of tests."""
    yield
    ctypes.CDLL(None).malloc_trim(0)


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


@pytest.fixture(params=[False, True], ids=["XLA", "kernels"])
def is_native(request: pytest.FixtureRequest) -> bool:
    """Whether the native kernels compute softmax, truncation and noise, or XLA."""
    if request.param:
        request.getfixturevalue("native_kernels")
    return bool(request.param)
