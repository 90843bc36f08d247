"""One service for the tests that do not change it."""

from collections.abc import Iterator

import pytest

from harness.service import GOLDENS, Service, kept_compilations, serving
from shaperouter import Client


@pytest.fixture(scope="session")
def service() -> Iterator[Service]:
    """Two models without tokenizers, one without and one with end tokens."""
    with serving(
        f"--model=endless={GOLDENS / 'gpt2-untied'}",
        f"--model=ending={GOLDENS / 'gpt2-many-eos'}",
        "--slots=4",
        env=kept_compilations(),
    ) as service:
        yield service


@pytest.fixture(scope="session")
def client(service: Service) -> Iterator[Client]:
    with Client(service.address) as client:
        yield client


@pytest.fixture(scope="session")
def demo() -> Iterator[Service]:
    """What `shaperouterd serve` starts by default: the embedded model, which generates text."""
    with serving(env=kept_compilations()) as service:
        yield service
