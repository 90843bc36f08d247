"""Runs exported graphs of the engine under JAX: are they right, and how fast is a step?

    python tests/benchmarks/gpu/run.py build/gpu

Needs what requirements.txt says, and what export.py wrote. For each graph of decode steps it reads
the prompts and decodes on JAX's default device, compares all with what TensorFlow computed on a
CPU, and measures the time of a step beside the device's memory bandwidth. Exits with 1 if a cache
is not updated in place, or float32 does not give the same tokens.
"""

import argparse
import dataclasses
import gzip
import json
import os
import re
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo
from manifest import (
    DECODE,
    FIRST,
    PREFILL,
    Array,
    Graph,
    Manifest,
    expected_file,
    inputs_file,
    probed_places,
    random_weight,
)

Arrays = dict[str, Any]

# Most that values of float32 may differ by between devices, of log-probabilities and of caches.
TOLERANCE = 1e-3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Executable:
    """A compiled graph, which takes arrays by name.

    Attributes:
        graph: What was compiled.
        compile_seconds: Time it took.
        in_place: Whether every cache shares its memory with its result.
        cache_copies: Copies of caches in the compiled module; each is one too many.
        temporary_bytes: Memory it takes besides arguments and results.
        operations: How many of some kinds the compiled module has, custom calls by target.
    """

    graph: Graph
    compile_seconds: float
    in_place: bool
    cache_copies: int
    temporary_bytes: int
    operations: dict[str, int]
    _compiled: Callable[..., Any]

    @classmethod
    def load(cls, directory: Path, graph: Graph) -> "Executable":
        """Compiles a graph for the default device."""
        with gzip.open(directory / graph.module) as file:
            module = file.read()
        arguments, results = map(_specs, (graph.arguments, graph.results))
        # A function of the same signature lends everything but its code.
        shell = jax.jit(
            lambda *_: [jnp.zeros(spec.shape, spec.dtype) for spec in results], keep_unused=True
        )
        with shell.lower(*arguments).compiler_ir("stablehlo").context:
            portable = stablehlo.serialize_portable_artifact(
                ir.Module.parse(module), stablehlo.get_minimum_version()
            )
        exported = dataclasses.replace(
            export.export(shell)(*arguments), mlir_module_serialized=portable
        )
        donated = [alias for alias in graph.aliases if alias is not None]
        started = time.monotonic()
        compiled = (
            jax.jit(exported.call, donate_argnums=donated, keep_unused=True)
            .lower(*arguments)
            .compile()
        )
        seconds = time.monotonic() - started
        memory = compiled.memory_analysis()
        text = compiled.as_text()
        (cache,) = {
            f"{'bf16' if array.dtype == 'bfloat16' else 'f32'}[{','.join(map(str, array.shape))}]"
            for array in graph.arguments
            if array.name.startswith("cache/")
        }
        return cls(
            graph=graph,
            compile_seconds=seconds,
            in_place=memory.alias_size_in_bytes >= graph.cache_bytes,
            cache_copies=len(re.findall(rf"= {re.escape(cache)}\S* copy\(", text)),
            temporary_bytes=memory.temp_size_in_bytes,
            operations=_count_operations(text),
            _compiled=compiled,
        )

    def __call__(self, arrays: Arrays) -> Arrays:
        """Runs it, and waits for the results; the caches among the arguments are used up."""
        results = self._compiled(*(arrays[array.name] for array in self.graph.arguments))
        jax.block_until_ready(results)
        return dict(zip((array.name for array in self.graph.results), results, strict=True))


def _specs(arrays: Sequence[Array]) -> list[jax.ShapeDtypeStruct]:
    return [jax.ShapeDtypeStruct(array.shape, jnp.dtype(array.dtype)) for array in arrays]


def _count_operations(text: str) -> dict[str, int]:
    kinds = re.findall(r" (fusion|copy|dot|sort|scatter|conditional|while)\(", text)
    return dict(Counter([*kinds, *re.findall(r'custom_call_target="([^"]+)"', text)]))


def only(arrays: Arrays, kind: str) -> Arrays:
    """Those whose names begin so."""
    return {name: array for name, array in arrays.items() if name.startswith(f"{kind}/")}


def read_prompts(
    program: Executable, inputs: Arrays, weights: Arrays, rows: int
) -> tuple[Arrays, Arrays]:
    """Reads the prompts of the first rows, one after another, as a worker would.

    Returns:
        What the first step takes of them, and the caches: of all rows.
    """
    graph = program.graph
    each: list[Arrays] = []
    for row in range(rows):
        # All hypotheses of a row have the same prompt.
        tokens, lengths = inputs["state/tokens"][row : row + 1, 0], inputs["state/lengths"]
        small = {"lengths": lengths[row : row + 1], "active": np.array([True])}
        caches = {
            array.name: jnp.zeros(array.shape, array.dtype)
            for array in graph.arguments
            if array.name.startswith("cache/")
        }
        (length,) = next(iter(caches.values())).shape[2:3]
        for begin in range(0, int(lengths[row]), graph.piece):
            start = min(begin, length - graph.piece)
            piece = {"tokens": tokens[:, start : start + graph.piece], "start": np.int32(start)}
            results = program(weights | caches | small | piece)
            caches = only(results, "cache")
        each.append(results)
    joined = {name: jnp.concatenate([results[name] for results in each]) for name in each[0]}
    return {"pending": np.asarray(joined["logits"])}, only(joined, "cache")


def probe(caches: Arrays, places: Sequence[int]) -> np.ndarray:
    """See export.py."""
    picked = [
        cache[0][:, np.asarray(places)].astype(jnp.float32)
        for _, cache in sorted(caches.items(), key=lambda item: int(item[0].split("/")[1]))
    ]
    return np.stack(picked)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """How results differ from the CPU's.

    Attributes:
        tokens: Generated tokens, of all rows and beams.
        equal_tokens: Those that are the CPU's, up to the row's first other token.
        logprob_difference: The largest of the equal tokens' log-probabilities; of beam search, of
            the open hypotheses' scores.
        cache_difference: The largest of some places of the first row's caches.
        closest: How much likelier the likeliest token was than the next, where that was closest;
            None with beam search.
    """

    tokens: int
    equal_tokens: int
    logprob_difference: float
    cache_difference: float
    closest: float | None

    @property
    def same(self) -> bool:
        """Whether it is the same but for rounding."""
        return (
            self.equal_tokens == self.tokens
            and max(self.logprob_difference, self.cache_difference) <= TOLERANCE
        )


def compare(found: Arrays, expected: Arrays, manifest: Manifest) -> Comparison:
    """Compares results of the first step and of the others, by name, as export.py names them."""
    state = f"{DECODE}/state"
    prompt_lengths = expected[f"{state}/prompt_lengths"]
    rows, beams, _ = expected[f"{state}/tokens"].shape
    # The first in a step of its own.
    made = manifest.steps + 1
    places = prompt_lengths[:, np.newaxis] + np.arange(made)
    new, old = (
        np.take_along_axis(arrays[f"{state}/tokens"], places[:, np.newaxis], axis=2)
        for arrays in (found, expected)
    )  # [R, B, made]
    agreeing = np.logical_and.accumulate(new == old, axis=-1)
    closest = None
    if beams == 1:

        def join(arrays: Arrays, field: str) -> np.ndarray:
            first, others = (arrays[f"{part}/logprobs/{field}"] for part in (FIRST, DECODE))
            return np.concatenate([first[:, :1], others[:, : manifest.steps]], axis=1)

        differences = np.abs(join(found, "chosen") - join(expected, "chosen"))[agreeing[:, 0]]
        top = join(expected, "top")
        closest = float((top[..., 0] - top[..., 1]).min())
    else:
        scores = f"{state}/beams/scores"
        differences = np.abs(found[scores] - expected[scores])[agreeing[..., -1]]
    caches = np.abs(found[f"{DECODE}/caches"] - expected[f"{DECODE}/caches"])
    if not agreeing[0].all():
        # Places of another token have nothing to be compared with.
        caches = caches[:, :, :1]
    return Comparison(
        tokens=rows * beams * made,
        equal_tokens=int(agreeing.sum()),
        logprob_difference=float(differences.max(initial=0)),
        cache_difference=float(caches.max()),
        closest=closest,
    )


def seconds_of(call: Callable[[], Any]) -> float:
    """How long a call takes."""
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


@dataclasses.dataclass(frozen=True, kw_only=True)
class Timing:
    """How long decoding takes.

    Attributes:
        step_seconds: Of one step: what a call of many takes longer than a call of one, a step.
            The median of all repeats.
        step_seconds_quartiles: The first and the last quartile.
        call_seconds: What a call takes besides.
        step_bytes: What a step must read: weights, and caches.
        bandwidth: Of the device's memory, in bytes a second, measured in the same run.
    """

    step_seconds: float
    step_seconds_quartiles: tuple[float, float]
    call_seconds: float
    step_bytes: int
    bandwidth: float

    @property
    def share(self) -> float:
        """The least time that memory allows as a share of the time taken."""
        return self.step_bytes / self.bandwidth / self.step_seconds


def measure(
    program: Executable, arrays: Arrays, manifest: Manifest, bandwidth: float, repeats: int
) -> Timing:
    """Times steps; from the same state each time, so that each repeat does the same.

    The state must have its first tokens: the step that makes these runs no layer.
    """
    arrays = {name: jax.device_put(array) for name, array in arrays.items()}
    numbers = {number: jax.device_put(np.int32(number)) for number in (1, manifest.steps)}

    def call(number: int) -> None:
        arrays.update(only(program(arrays | {"steps": numbers[number]}), "cache"))

    for number in numbers:
        call(number)
    single, many = [], []
    for _ in range(repeats):
        single.append(seconds_of(lambda: call(1)))
        many.append(seconds_of(lambda: call(manifest.steps)))
    differences = [
        (long - short) / (manifest.steps - 1) for short, long in zip(single, many, strict=True)
    ]
    step = statistics.median(differences)
    quartiles = statistics.quantiles(differences, n=4)
    size = jnp.dtype(program.graph.precision).itemsize
    return Timing(
        step_seconds=step,
        step_seconds_quartiles=(quartiles[0], quartiles[2]),
        call_seconds=statistics.median(single) - step,
        step_bytes=manifest.step_weights * size + program.graph.cache_bytes,
        bandwidth=bandwidth,
    )


def measure_bandwidth(mebibytes: int, repeats: int) -> dict[str, float]:
    """Bytes a second of plain operations on a large matrix; what is fastest is the bandwidth."""
    columns = 4096
    matrix = jnp.ones((mebibytes * 2**20 // (4 * columns), columns), jnp.float32)
    probes = {
        "copy": (jax.jit(lambda x: x + 1), [matrix], 2),
        "sum": (jax.jit(jnp.sum), [matrix], 1),
        "product": (jax.jit(jnp.matmul), [matrix, jnp.ones(columns, jnp.float32)], 1),
    }
    bandwidths = {}
    for name, (function, operands, passes) in probes.items():

        def call(function: Any = function, operands: list[Any] = operands) -> None:
            jax.block_until_ready(function(*operands))

        call()
        bandwidths[name] = passes * matrix.nbytes / min(seconds_of(call) for _ in range(repeats))
    return bandwidths


class Bench:
    """Checks and times the graphs of an export."""

    def __init__(
        self, directory: Path, manifest: Manifest, *, bandwidth: float, repeats: int
    ) -> None:
        """Of an export in a directory, on a device of some bandwidth."""
        self._directory, self._manifest = directory, manifest
        self._bandwidth, self._repeats = bandwidth, repeats

    def run(self) -> Iterator[dict[str, Any]]:
        """Yields what is to be said of each decode graph."""
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
        """Checks and times a graph, from what the prefill left."""
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
    parser.add_argument("directory", type=Path, help="what export.py wrote")
    parser.add_argument("--repeats", type=int, default=20, help="of each timing (default: 20)")
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
