"""A thousand calls of functions in a process of their own, because TensorFlow keeps graphs.

Prints a report of the graphs as JSON.
"""

import argparse
import json
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shaperouter_service.compile_cache import CompileCache
from shaperouter_service.compile_cache.flags import set_flags

CALLS = 1000


def run(cache: Path, functions: Sequence[Path]) -> dict[str, Any]:
    """Runs this module with a compile cache."""
    root = Path(__file__).parents[1]
    ended = subprocess.run(
        [sys.executable, "-m", "harness.served_functions", str(cache), *map(str, functions)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(root), *sys.path])},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    report: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return report


def _report(directory: Path, functions: Sequence[Path]) -> dict[str, Any]:
    # Imported after the flags are set, because TensorFlow reads them at import.
    from harness.call_engine import CallBench, random_inputs
    from harness.waiting import wait_until
    from shaperouter_service.graphs import GraphState

    cache = CompileCache.open(directory, max_bytes=10**9)
    assert cache is not None
    bench = CallBench({path.name: path for path in functions}, cache)
    bench.wait_until_ready()
    models = {path.name: bench.scheduler(path.name).model for path in functions}
    ladders = [graph for name in models for graph in models[name].ladders.signatures(name)]
    rng = random.Random(0)
    calls = []
    for index in range(CALLS):
        name = rng.choice(list(models))
        calls.append(bench.submit(name, random_inputs(models[name].spec, rng)))
        # As a router would, while calls are served.
        if index == CALLS // 2:
            bench.engine.request_compile(ladders)
    stalls = sum(call.wait().timings.stall_seconds for call in calls)
    table = bench.graphs
    wait_until(lambda: all(table.graph(each).state is GraphState.READY for each in ladders))
    graphs = table.graphs()
    return {
        "signatures": len(ladders),
        "traces": [graph.traces for graph in graphs],
        "compiles": [graph.compiles for graph in graphs],
        "loads": [graph.loads for graph in graphs],
        "stall_seconds": stalls,
    }


def main() -> None:
    """Prints the report."""
    parser = argparse.ArgumentParser()
    parser.add_argument("cache", type=Path)
    parser.add_argument("functions", type=Path, nargs="+")
    given = parser.parse_args()
    set_flags()
    print(json.dumps(_report(given.cache, given.functions)), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
