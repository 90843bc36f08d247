"""Engines over the golden checkpoints, shared so that each graph is compiled once a session."""

import random
from collections.abc import Iterator

import pytest

from harness.engine import CHECKPOINTS, TINY, Bench, Golden


@pytest.fixture(scope="session", params=list(CHECKPOINTS))
def golden(request: pytest.FixtureRequest) -> Golden:
    return Golden.read(request.param)


@pytest.fixture(scope="session", params=TINY)
def tiny(request: pytest.FixtureRequest) -> Golden:
    """A checkpoint whose probabilities are known."""
    return Golden.read(request.param)


@pytest.fixture(scope="session")
def bench() -> Iterator[Bench]:
    bench = Bench(CHECKPOINTS)
    yield bench
    assert not bench.defects


@pytest.fixture
def rng() -> random.Random:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    return random.Random(seed)
