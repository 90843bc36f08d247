"""Shaperouter as a service: `shaperouterd serve` as real processes, and its client."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from common.protocol import arguments
from harness.service import serving
from harness.tight import Case, tight_signatures
from harness.waiting import wait_until
from shaperouter import Client, Generation, GraphState
from shaperouter_service.routing.ladders import Ladders

from .contestant import Contestant, Generated, serve

MODEL = "bench"
BUSY = (GraphState.TRACING, GraphState.COMPILING)


class ShaperouterService(Contestant):
    """Calls the service through the client, concurrently for several prompts."""

    packages = ("tensorflow-cpu", "grpcio")

    def __init__(self, client: Client, threads: ThreadPoolExecutor, *, slots: int) -> None:
        self._client = client
        self._threads = threads
        (model,) = client.models()
        self._ladders = Ladders.default(max_length=model.max_length, slots=slots)

    def generate(
        self, prompts: Sequence[Sequence[int]], new_tokens: int, options: Mapping[str, Any]
    ) -> Generated:
        self._make_tight(prompts, new_tokens, options.get("num_beams", 1))

        def call(prompt: Sequence[int]) -> Generation:
            return self._client.generate(prompt, max_new_tokens=new_tokens, **options)

        generations = list(self._threads.map(call, prompts))
        uses = [use for generation in generations for use in generation.graphs]
        return Generated(
            token_ids=[generation.token_ids for generation in generations],
            device_seconds=sum(use.device_seconds for use in uses),
        )

    def _make_tight(self, prompts: Sequence[Sequence[int]], new_tokens: int, beams: int) -> None:
        """Compiles the graphs that the service would compile after missing them."""
        cases = [
            Case(prompt_tokens=len(prompt), new_tokens=new_tokens, num_beams=beams)
            for prompt in prompts
        ]
        wanted = {
            str(signature)
            for group in (cases, *([case] for case in set(cases)))
            for signature in tight_signatures(MODEL, self._ladders, group)
        }
        for _ in self._client.warm_graphs(sorted(wanted)):
            pass

    def graphs(self) -> list[dict[str, Any]]:
        """The graphs, after all compilations."""
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
        serving(f"--model={MODEL}={given.model}", f"--slots={given.slots}") as service,
        Client(service.address) as client,
        ThreadPoolExecutor(given.slots) as threads,
    ):
        yield ShaperouterService(client, threads, slots=given.slots)


if __name__ == "__main__":
    serve(load())
