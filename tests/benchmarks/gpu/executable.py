"""Exported graphs compiled by JAX, and prefill with them."""

import dataclasses
import gzip
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo
from manifest import Array, Graph

Arrays = dict[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Executable:
    """A compiled graph, which takes arrays by name.

    Attributes:
        graph: The compiled graph.
        compile_seconds: Compile time.
        in_place: Whether every cache shares its memory with its result.
        cache_copies: Copies of caches in the compiled module; each is one too many.
        temporary_bytes: Memory it takes besides arguments and results.
        operations: Numbers of some kinds of operations; custom calls are counted by target.
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
        """Runs the graph and waits for the results; consumes the caches among the arguments."""
        results = self._compiled(*(arrays[array.name] for array in self.graph.arguments))
        jax.block_until_ready(results)
        return dict(zip((array.name for array in self.graph.results), results, strict=True))


def _specs(arrays: Sequence[Array]) -> list[jax.ShapeDtypeStruct]:
    return [jax.ShapeDtypeStruct(array.shape, jnp.dtype(array.dtype)) for array in arrays]


def _count_operations(text: str) -> dict[str, int]:
    kinds = re.findall(r" (fusion|copy|dot|sort|scatter|conditional|while)\(", text)
    return dict(Counter([*kinds, *re.findall(r'custom_call_target="([^"]+)"', text)]))


def only(arrays: Arrays, kind: str) -> Arrays:
    """The arrays whose names begin with a prefix."""
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
        (length,) = next(iter(caches.values())).shape[3:4]
        for begin in range(0, int(lengths[row]), graph.piece):
            start = min(begin, length - graph.piece)
            piece = {"tokens": tokens[:, start : start + graph.piece], "start": np.int32(start)}
            results = program(weights | caches | small | piece)
            caches = only(results, "cache")
        each.append(results)
    joined = {name: jnp.concatenate([results[name] for results in each]) for name in each[0]}
    return {"pending": np.asarray(joined["logits"])}, only(joined, "cache")
