"""Shaperouter's engine, in the contestant's own process."""

import argparse
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from common.protocol import arguments
from harness.engine import Bench
from harness.tight import Case
from harness.waiting import wait_until
from shaperouter_service.commands.options import default_compile_threads
from shaperouter_service.routing.snapshots import GraphState, Snapshot
from shaperouter_service.system.devices import usable_cores

from .contestant import Contestant, Generated, serve

MODEL = "bench"
BUSY = (GraphState.TRACING, GraphState.COMPILING)


class ShaperouterEngine(Contestant):
    """Submits requests to the engine, one for each prompt."""

    packages = ("tensorflow-cpu",)

    def __init__(self, model: Path, *, slots: int, dtype: str, kernels: str) -> None:
        self._bench = Bench(
            {MODEL: model},
            slots=slots,
            dtype=dtype,
            kernels=kernels,
            compile_threads=default_compile_threads(usable_cores()),
        )

    def generate(
        self, prompts: Sequence[Sequence[int]], new_tokens: int, options: Mapping[str, Any]
    ) -> Generated:
        beams = options.get("num_beams", 1)
        cases = [
            Case(prompt_tokens=len(prompt), new_tokens=new_tokens, num_beams=beams)
            for prompt in prompts
        ]
        # A service compiles them after requests have missed them; this measures what follows.
        self._bench.make_tight(MODEL, cases, *([case] for case in set(cases)))
        runs = [
            self._bench.submit(MODEL, prompt, max_new_tokens=new_tokens, **options)
            for prompt in prompts
        ]
        for run in runs:
            run.wait()
        uses = [use for run in runs for use in run.run.uses.values()]
        return Generated(
            token_ids=[run.token_ids for run in runs],
            device_seconds=sum(use.device_seconds for use in uses),
        )

    def graphs(self) -> list[dict[str, Any]]:
        """The graphs, after all compilations."""
        wait_until(lambda: all(graph.state not in BUSY for graph in self._snapshot().graphs))
        return [
            {
                "signature": str(graph.signature),
                "traces": graph.traces,
                "trace_seconds": graph.trace_seconds,
                "compile_seconds": graph.compile_seconds.sum,
            }
            for graph in self._snapshot().graphs
        ]

    def _snapshot(self) -> Snapshot:
        return self._bench.engine.snapshot(worker="", incarnation="")


@contextmanager
def load() -> Iterator[Contestant]:
    parser = argparse.ArgumentParser()
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--kernels", default="auto")
    given = arguments(parser)
    yield ShaperouterEngine(
        given.model, slots=given.slots, dtype=given.dtype, kernels=given.kernels
    )


if __name__ == "__main__":
    serve(load())
    sys.stdout.flush()
    # As in the service: an interpreter may crash if it ends while TensorFlow's threads run.
    os._exit(0)
