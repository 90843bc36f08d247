"""Runs exported graphs of the engine under JAX, checks them and times their steps.

    python tests/benchmarks/gpu/run.py build/gpu

Needs the packages of requirements.txt and the output of export.py. For each decode graph it reads
the prompts and decodes on JAX's default device, compares the results with TensorFlow's on a CPU,
and measures the time of a step and the device's memory bandwidth. Exits with 1 if a cache is not
updated in place, or if float32 does not give the same tokens.
"""

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from comparison import Comparison, compare, probe
from executable import Arrays, Executable, only, read_prompts
from manifest import (
    DECODE,
    FIRST,
    PREFILL,
    Graph,
    Manifest,
    expected_file,
    inputs_file,
    probed_places,
    random_weight,
)
from timing import measure, measure_bandwidth


class Bench:
    """Checks and times the graphs of an export."""

    def __init__(
        self, directory: Path, manifest: Manifest, *, bandwidth: float, repeats: int
    ) -> None:
        """Reads the export of a directory, for a device of the given bandwidth."""
        self._directory, self._manifest = directory, manifest
        self._bandwidth, self._repeats = bandwidth, repeats

    def run(self) -> Iterator[dict[str, Any]]:
        """Yields the results of each decode graph."""
        for prefill in self._manifest.graphs:
            if prefill.kind != PREFILL:
                continue
            decodes = [
                graph
                for graph in self._manifest.graphs
                if (graph.kind, graph.precision) == (DECODE, prefill.precision)
            ]
            yield from self._run_precision(prefill, decodes)

    def _run_precision(self, prefill: Graph, decodes: Sequence[Graph]) -> Iterator[dict[str, Any]]:
        weights = {
            array.name: jax.device_put(
                random_weight(
                    array.name.removeprefix("weight/"), array.shape, self._manifest.seed
                ).astype(array.dtype)
            )
            for array in prefill.arguments
            if array.name.startswith("weight/")
        }
        reader = Executable.load(self._directory, prefill)
        for beams in dict.fromkeys(decode.beams for decode in decodes):
            with np.load(self._directory / inputs_file(beams)) as file:
                inputs = dict(file)
            same_width = [decode for decode in decodes if decode.beams == beams]
            rows = max(decode.rows for decode in same_width)
            pending, caches = read_prompts(reader, inputs, weights, rows)
            for decode in same_width:
                small = {name: array[: decode.rows] for name, array in (inputs | pending).items()}
                own = {name: jnp.copy(cache[: decode.rows]) for name, cache in caches.items()}
                report = self._run_graph(decode, small, own, weights)
                report["passed"] &= reader.in_place
                report["prefill"] = {
                    "in_place": reader.in_place,
                    "cache_copies": reader.cache_copies,
                    "compile_seconds": reader.compile_seconds,
                }
                yield report

    def _run_graph(
        self, decode: Graph, small: Arrays, caches: Arrays, weights: Arrays
    ) -> dict[str, Any]:
        """Checks and times a graph, from the state after prefill."""
        manifest = self._manifest
        program = Executable.load(self._directory, decode)
        arrays = weights | small | {"active": np.ones(decode.rows, bool)}
        first = program(arrays | caches | {"steps": np.int32(1)})
        arrays |= only(first, "state")
        results = program(arrays | only(first, "cache") | {"steps": np.int32(manifest.steps)})
        caches = only(results, "cache")
        comparison = self._compare(decode, first, results)
        # Log-probabilities were asked for to be compared; few requests ask for them.
        arrays["options/logprobs"] = np.full(decode.rows, -1, np.int32)
        timing = measure(program, arrays | caches, manifest, self._bandwidth, self._repeats)
        return {
            "precision": decode.precision,
            "rows": decode.rows,
            "beams": decode.beams,
            "passed": program.in_place and (comparison.same or decode.precision != "float32"),
            "comparison": dataclasses.asdict(comparison),
            "timing": dataclasses.asdict(timing) | {"share_of_bandwidth": timing.share},
            "in_place": program.in_place,
            "cache_copies": program.cache_copies,
            "cache_bytes": decode.cache_bytes,
            "temporary_bytes": program.temporary_bytes,
            "compile_seconds": program.compile_seconds,
            "operations": program.operations,
        }

    def _compare(self, decode: Graph, first: Arrays, results: Arrays) -> Comparison:
        file_name = expected_file(decode.precision, decode.rows, decode.beams)
        with np.load(self._directory / file_name) as file:
            expected = dict(file)
        found = {
            f"{part}/{name}": np.asarray(array)
            for part, arrays in ((FIRST, first), (DECODE, results))
            for kind in ("state", "logprobs")
            for name, array in only(arrays, kind).items()
        }
        places = probed_places(
            int(results["state/prompt_lengths"][0]), decode.beams, self._manifest.steps
        )
        found[f"{DECODE}/caches"] = probe(only(results, "cache"), places)
        return compare(found, expected, self._manifest)


COLUMNS: dict[str, Callable[[dict[str, Any]], str]] = {
    "precision": lambda case: case["precision"],
    "rows": lambda case: str(case["rows"]),
    "beams": lambda case: str(case["beams"]),
    "equal tokens": lambda case: (
        f"{case['comparison']['equal_tokens']}/{case['comparison']['tokens']}"
    ),
    "logprobs off by": lambda case: f"{case['comparison']['logprob_difference']:.1e}",
    "in place": lambda case: "yes" if case["in_place"] else "NO",
    "step ms": lambda case: f"{1e3 * case['timing']['step_seconds']:.3f}",
    "quartiles": lambda case: "–".join(
        f"{1e3 * seconds:.3f}" for seconds in case["timing"]["step_seconds_quartiles"]
    ),
    "call ms": lambda case: f"{1e3 * case['timing']['call_seconds']:.3f}",
    "MB a step": lambda case: f"{case['timing']['step_bytes'] / 1e6:.0f}",
    "of bandwidth": lambda case: f"{case['timing']['share_of_bandwidth']:.0%}",
}


def print_table(cases: Sequence[dict[str, Any]]) -> None:
    """Prints a line for each case."""
    table = [list(COLUMNS), *([cell(case) for cell in COLUMNS.values()] for case in cases)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for line in table:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))


def main() -> int:
    """Runs all graphs, prints a table, and writes results.json beside the manifest."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path, help="directory written by export.py")
    parser.add_argument(
        "--repeats", type=int, default=20, help="repeats of each timing (default: 20)"
    )
    parser.add_argument(
        "--bandwidth-mib",
        type=int,
        default=1024,
        help="size of what memory bandwidth is measured with (default: 1024)",
    )
    arguments = parser.parse_args()
    manifest = Manifest.read(arguments.directory)
    device = jax.devices()[0]
    bandwidths = measure_bandwidth(arguments.bandwidth_mib, arguments.repeats)
    conditions = {
        "device": device.device_kind,
        "platform": device.platform,
        "cores": os.cpu_count(),
        "jax": jax.__version__,
        "clocks": "unknown",
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "bandwidths": bandwidths,
        "repeats": arguments.repeats,
        "model": manifest.model,
        "length": manifest.length,
        "exported_by": f"TensorFlow {manifest.tensorflow}",
    }
    print(json.dumps(conditions))
    bench = Bench(
        arguments.directory,
        manifest,
        bandwidth=max(bandwidths.values()),
        repeats=arguments.repeats,
    )
    cases = []
    for case in bench.run():
        print(f"{case['precision']} {case['rows']}x{case['beams']}: done", file=sys.stderr)
        cases.append(case)
    print_table(cases)
    (arguments.directory / "results.json").write_text(
        json.dumps({"conditions": conditions, "cases": cases}, indent=1) + "\n", encoding="utf-8"
    )
    return int(not all(case["passed"] for case in cases))


if __name__ == "__main__":
    sys.exit(main())
