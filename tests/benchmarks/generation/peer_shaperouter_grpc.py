"""Shaperouter as a service: `shaperouterd serve` as real processes, and its client."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from common.protocol import arguments
from harness.service import serving
from harness.waiting import wait_until
from shaperouter import Client, Generation, GraphState

from .contestant import Contestant, Generated, serve

BUSY = (GraphState.TRACING, GraphState.COMPILING)


class ShaperouterService(Contestant):
    """Requests through the client; several prompts are as many concurrent calls."""

    packages = ("tensorflow-cpu", "grpcio")

    def __init__(self, client: Client, threads: ThreadPoolExecutor) -> None:
        self._client = client
        self._threads = threads

    def generate(
        self, prompts: Sequence[Sequence[int]], new_tokens: int, options: Mapping[str, Any]
    ) -> Generated:
        def call(prompt: Sequence[int]) -> Generation:
            return self._client.generate(prompt, max_new_tokens=new_tokens, **options)

        generations = list(self._threads.map(call, prompts))
        uses = [use for generation in generations for use in generation.graphs]
        return Generated(
            token_ids=[generation.token_ids for generation in generations],
            device_seconds=sum(use.device_seconds for use in uses),
        )

    def graphs(self) -> list[dict[str, Any]]:
        """The graphs, once none is being compiled."""
        wait_until(lambda: all(graph.state not in BUSY for graph in self._client.graphs()))
        return [
            {
                "signature": str(graph.signature),
                "traces": graph.traces,
                "trace_seconds": graph.trace_seconds,
                "compile_seconds": graph.compile_seconds.sum,
            }
            for graph in self._client.graphs()
        ]


@contextmanager
def load() -> Iterator[Contestant]:
    parser = argparse.ArgumentParser()
    parser.add_argument("--slots", type=int, required=True)
    given = arguments(parser)
    with (
        serving(f"--model=bench={given.model}", f"--slots={given.slots}") as service,
        Client(service.address) as client,
        ThreadPoolExecutor(given.slots) as threads,
    ):
        yield ShaperouterService(client, threads)


if __name__ == "__main__":
    serve(load())
