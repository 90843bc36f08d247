"""An engine with a compile cache in a separate process, because TensorFlow keeps compiled graphs.

Makes graphs ready in the order asked for, runs golden cases on them, and prints a report as JSON.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from shaperouter_service.compile_cache import CompileCache
from shaperouter_service.compile_cache.flags import set_flags

MODEL = "gpt2-odd-heads"

# Rungs of the ladders: the cases have more tokens than the rung below.
PROMPT_RUNG, LOWER_RUNG = 48, 16


def run(
    directory: Path, order: list[str], *, name: str = MODEL, checkpoint: str = MODEL
) -> tuple[dict[str, Any], str]:
    """Runs this module.

    Args:
        directory: Directory of the cache.
        order: Graphs to make ready, e.g. `prefill` and `decode2` (two beams).
        name: Name of the model.
        checkpoint: Name of the golden checkpoint.

    Returns:
        The report, and the standard error of the process.
    """
    root = Path(__file__).parents[1]
    ended = subprocess.run(
        [sys.executable, "-m", "harness.cached_engine", str(directory), name, checkpoint, *order],
        env={
            name: value
            for name, value in os.environ.items()
            # A worker's command sets these flags for its own process.
            if name != "TF_CPP_MIN_LOG_LEVEL"
        }
        | {"PYTHONPATH": os.pathsep.join([str(root), *sys.path])},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1]), ended.stderr


def _report(directory: Path, name: str, checkpoint: str, order: list[str]) -> dict[str, Any]:
    # Imported after the flags are set, because TensorFlow reads them at import.
    from harness.engine import CHECKPOINTS, Bench, Golden, assert_equals, few_rungs
    from harness.waiting import wait_until
    from shaperouter_service.graphs import GraphState
    from shaperouter_service.routing.signatures import GraphKind
    from shaperouter_service.worker.warm_up import WarmUp

    golden = Golden.read(checkpoint)
    # Graphs are compiled only in the given order.
    WarmUp.start = lambda *_, **__: None  # type: ignore[method-assign]  # patched
    bench = Bench(
        {name: CHECKPOINTS[checkpoint]},
        slots=1,
        ladders=few_rungs,
        compile_cache=CompileCache.open(directory, max_bytes=10**9),
    )
    table = bench.parts.graphs
    signatures = {
        f"{signature.kind}{signature.beams}": signature
        for signature in bench.parts.ladders[name].signatures(name)
        if signature.kind is GraphKind.DECODE or signature.length == PROMPT_RUNG
    }
    for wanted in order:
        graph = table.request_compile(signatures[wanted], urgent=False)
        wait_until(lambda graph=graph: graph.state in (GraphState.READY, GraphState.FAILED))

    cases = [
        case
        for case in (*golden.cases, *golden.option_cases)
        if LOWER_RUNG < len(golden.source(case) or golden.prompt(case)) <= PROMPT_RUNG
        and len(golden.prompt(case)) <= PROMPT_RUNG
        and f"decode{case.get('options', {}).get('num_beams', 1)}" in order
    ]
    for case in cases:
        source, options = golden.source(case), golden.options(case)
        assert_equals(bench.submit(name, golden.prompt(case), source=source, **options), case)
    moved = [
        wanted
        for wanted in order
        if not _stays(table.request_compile(signatures[wanted], urgent=False).program)
    ]
    bench.stop_compiling()
    return {
        "cases": len(cases),
        "caches_moved": moved,
        "make_seconds": {
            f"{graph.signature.kind}{graph.signature.beams}": graph.make_seconds
            for graph in table.graphs()
            if graph.state is not GraphState.COLD
        },
        "graphs": {
            f"{graph.signature.kind}{graph.signature.beams}": {
                "traces": graph.traces,
                "compiles": graph.compiles,
                "loads": graph.loads,
                "failures": graph.failures,
                "error": graph.error,
            }
            for graph in table.graphs()
            if graph.state is not GraphState.COLD
        },
    }


def _stays(program: Any) -> bool:
    """Whether a call updates the caches in place."""
    import numpy as np
    import tensorflow as tf

    def addresses() -> list[int]:
        return [
            # Tensor.numpy() would copy it.
            np.asarray(
                memoryview(tf.raw_ops.ReadVariableOp(resource=handle, dtype=batch.model.dtype))
            ).ctypes.data
            for handle in program._handles(batch)
        ]

    batch = program._new_batch()
    # The first call gives each cache its own memory, because zeros of TensorFlow may share memory.
    program._run(batch, *program._idle_arguments(batch))
    before = addresses()
    program._run(batch, *program._idle_arguments(batch))
    return before == addresses()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("model")
    parser.add_argument("checkpoint")
    parser.add_argument("graphs", nargs="+")
    arguments = parser.parse_args()
    set_flags()
    report = _report(arguments.directory, arguments.model, arguments.checkpoint, arguments.graphs)
    print(json.dumps(report), flush=True)
    # As in the service: an interpreter may crash if it ends while TensorFlow's threads run.
    os._exit(0)


if __name__ == "__main__":
    main()
