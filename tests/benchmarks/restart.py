"""Time that the compile cache saves when a worker starts.

A new process each time warms 20 graphs of GPT-2's small size with random weights: without a cache,
with an empty one, and with a full one in the same and in another order. Then one process times
decode steps of a compiled graph and of the same graph loaded from the cache, in turn.

Run by ``make bench-restart``.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common.checkpoint import VOCABULARY, make_checkpoint
from shaperouter_service.compile_cache import CompileCache
from shaperouter_service.compile_cache.flags import set_flags

BUILD = Path(__file__).parents[2] / "build" / "bench"
MODEL = "gpt2-small"
GRAPHS = 20
OTHER_ORDER_SEED = 1
# Shape of the step's graph, and the number of its calls in turn.
ROWS, LENGTH, STEPS, ROUNDS = 8, 128, 4, 26


def main() -> None:
    """Measures and prints the results, or runs as one of the measured processes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", type=int, default=GRAPHS, help="number of graphs to make ready")
    parser.add_argument("--child", choices=["ready", "steps"], help=argparse.SUPPRESS)
    parser.add_argument("--cache", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--order", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        if arguments.cache:
            set_flags()
        measure = {"ready": _ready, "steps": _steps}[arguments.child]
        print(json.dumps(measure(arguments)), flush=True)
        # As in the service: an interpreter may crash if it ends while TensorFlow's threads run.
        os._exit(0)
    make_checkpoint(BUILD / MODEL)
    with tempfile.TemporaryDirectory() as directory:
        _measure(arguments.graphs, f"--cache={directory}")


def _measure(graphs: int, cache: str) -> None:
    runs = {
        "without a cache": [],
        "empty cache": [cache],
        "full cache, same order": [cache],
        "full cache, other order": [cache, f"--order={OTHER_ORDER_SEED}"],
    }
    print(f"{graphs} graphs of {MODEL} ready:\n")
    print(f"{'':<24} {'seconds':>8} {'ratio':>6} {'traces':>7} {'compiles':>9} {'loads':>6}")
    first = None
    for name, options in runs.items():
        found = _child("--child=ready", f"--graphs={graphs}", *options)
        first = first or found["seconds"]
        print(
            f"{name:<24} {found['seconds']:>8.1f} {found['seconds'] / first:>6.2f} "
            f"{found['traces']:>7} {found['compiles']:>9} {found['loads']:>6}",
            flush=True,
        )
    size = sum(
        entry.bytes for entry in CompileCache(Path(cache.partition("=")[2]), max_bytes=0).entries()
    )
    print(f"\nSize of the cache: {size / 1e6:.1f} MB.")
    steps = _child("--child=steps", cache)
    print(
        f"\nA decode step of {ROWS} rows and {LENGTH} positions, medians of {ROUNDS} in turn: "
        f"compiled {steps['compiled']:.2f} ms, loaded {steps['loaded']:.2f} ms, "
        f"ratio {steps['loaded'] / steps['compiled']:.3f}."
    )


def _child(*arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, __file__, *arguments],
        stdout=subprocess.PIPE,
        env=os.environ | {"TF_ENABLE_ONEDNN_OPTS": "0", "TF_CPP_MIN_LOG_LEVEL": "3"},
        text=True,
        check=True,
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _ready(arguments: argparse.Namespace) -> dict[str, float]:
    """Makes graphs ready like a worker that has loaded its model."""
    from harness.engine import Bench
    from harness.waiting import wait_until
    from shaperouter_service.graphs import GraphState

    bench = Bench(
        {MODEL: BUILD / MODEL},
        slots=8,
        compile_threads=2,
        compile_cache=arguments.cache and CompileCache(arguments.cache, max_bytes=10**10),
    )
    table = bench.parts.graphs
    signatures = list(bench.parts.ladders[MODEL].signatures(MODEL))
    # An equal number of each kind and size.
    wanted = [
        signatures[index * len(signatures) // arguments.graphs] for index in range(arguments.graphs)
    ]
    if arguments.order is not None:
        random.Random(arguments.order).shuffle(wanted)
    started = time.monotonic()
    graphs = [table.request_compile(signature, urgent=False) for signature in wanted]
    wait_until(lambda: all(graph.state is GraphState.READY for graph in graphs), timeout=1800)
    return {
        "seconds": time.monotonic() - started,
        "traces": sum(graph.program.traces for graph in graphs),
        "compiles": sum(graph.compiles for graph in graphs),
        "loads": sum(graph.loads for graph in graphs),
    }


def _steps(arguments: argparse.Namespace) -> dict[str, float]:
    """Milliseconds of a decode step of a graph compiled here, and of a loaded one."""
    import numpy as np

    from shaperouter_service.decoding import Batch, DecodeProgram, Options
    from shaperouter_service.graphs import CachedGraphBuilder, GraphBuilder, cache_key
    from shaperouter_service.kernels import choose
    from shaperouter_service.models import load_model

    model = load_model(MODEL, BUILD / MODEL, "float32", packed=choose("auto") is not None)
    section = CompileCache(arguments.cache, max_bytes=10**10).section(cache_key(model))

    def program() -> DecodeProgram:
        return DecodeProgram("decode", model, rows=ROWS, beams=1, length=LENGTH)

    # The measured graphs need not include this one, so it is put into the cache first.
    stored = CachedGraphBuilder(program(), section)
    stored.trace()
    stored.compile()
    programs = {"compiled": program(), "loaded": program()}
    builders = [GraphBuilder(programs["compiled"]), CachedGraphBuilder(programs["loaded"], section)]
    for builder in builders:
        builder.trace()
    loaded = [builder.compile() for builder in builders]
    if loaded != [False, True]:
        raise SystemExit("the graph of the step was not loaded from the cache")
    batches = {}
    for name in programs:
        batch = batches[name] = Batch(model, rows=ROWS, beams=1, length=LENGTH)
        for row in range(ROWS):
            batch.begin(row, [row + 1] * 16, Options.of(max_new_tokens=LENGTH - 16))
        batch.logits = np.random.default_rng(0).random([ROWS, VOCABULARY], np.float32)
    times: dict[str, list[float]] = {name: [] for name in programs}
    for turn in range(ROUNDS):
        for name in sorted(programs, reverse=bool(turn % 2)):
            started = time.perf_counter()
            programs[name](batches[name], range(ROWS), STEPS)
            times[name].append(1000 * (time.perf_counter() - started) / STEPS)
    return {name: statistics.median(found) for name, found in times.items()}


if __name__ == "__main__":
    main()
