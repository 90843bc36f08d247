"""Shaperouter as a service: `shaperouterd serve` as real processes, and its client."""

import argparse
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from common.protocol import arguments
from harness.service import serving
from shaperouter import Client

from .calling import timed_calls
from .contestant import Contestant, serve


class ShaperouterService(Contestant):
    """Calls the service; callers share a client."""

    packages = ("tensorflow-cpu", "grpcio")
    ways = ("service",)

    def __init__(self, client: Client) -> None:
        self._client = client

    def call(self, calls: Sequence[Sequence[str]], callers: int, way: str) -> Mapping[str, Any]:
        del way
        return timed_calls(self._embed, calls, callers)

    def _embed(self, texts: Sequence[str]) -> np.ndarray:
        return np.asarray(self._client.embed(list(texts), truncate=True).vectors, np.float32)


@contextmanager
def load() -> Iterator[Contestant]:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dtype", required=True)
    given = arguments(parser)  # without the number of threads: the service uses all cores
    with tempfile.TemporaryDirectory() as cache:
        environment = {"SHAPEROUTER_COMPILE_CACHE": f"{cache}/graphs"}
        options = [f"--model=bench={given.model}", f"--dtype={given.dtype}"]
        with serving(*options, env=environment) as service, Client(service.address) as client:
            yield ShaperouterService(client)


if __name__ == "__main__":
    serve(load())
