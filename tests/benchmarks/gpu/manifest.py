"""The manifest of an export: its graphs with their arguments and results.

Needs only NumPy, so that both environments can import it. The manifest and the .npz files of inputs
and expected results use the same names for arrays. A name is one of

    tokens  lengths  active  start  logits                      of a prefill
    state/…  options/…  pending  active  steps  made  logprobs/…
                                                                of a decode
    cache/INDEX  weight/NAME                                    of both

where the caches are the keys of each layer, then the values of each layer.
"""

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self
from zlib import crc32

import numpy as np

FILE = "manifest.json"

PREFILL, DECODE = "prefill", "decode"

# The call of a decode that makes the first tokens, in results.
FIRST = "first"

# Types of weights and caches, and of what products are computed from.
PRECISIONS = ("float32", "bfloat16")


def inputs_file(beams: int) -> str:
    """File of states and options before the first token, of as many rows as any graph has."""
    return f"inputs-{beams}.npz"


def expected_file(precision: str, rows: int, beams: int) -> str:
    """File of the CPU's results for the first rows, after the first tokens and after all."""
    return f"expected-{precision}-{rows}x{beams}.npz"


@dataclass(frozen=True, kw_only=True)
class Array:
    """An argument or result of a graph.

    Attributes:
        name: See the module's docstring.
        shape: Its dimensions.
        dtype: As NumPy calls it.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, kw_only=True)
class Graph:
    """A graph of the engine.

    Attributes:
        kind: PREFILL or DECODE.
        precision: One of PRECISIONS.
        rows: R.
        beams: B; 1 of a prefill.
        piece: Tokens that a call of a prefill reads; 0 for a decode.
        arguments: In order.
        results: In order.
        aliases: The argument whose memory a result takes, for each result: an index, or None.
    """

    kind: str
    precision: str
    rows: int
    beams: int
    piece: int
    arguments: tuple[Array, ...]
    results: tuple[Array, ...]
    aliases: tuple[int | None, ...]

    @property
    def module(self) -> str:
        """File of the StableHLO, as text."""
        return f"{self.kind}-{self.precision}-{self.rows}x{self.beams}.mlir.gz"

    @property
    def cache_bytes(self) -> int:
        """Memory of the caches."""
        return sum(
            np.prod(array.shape, dtype=int).item() * (2 if array.dtype == "bfloat16" else 4)
            for array in self.arguments
            if array.name.startswith("cache/")
        )


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The content of an export.

    Attributes:
        model: The content of config.json.
        seed: Seed of the weights.
        length: T.
        steps: Tokens that the expected results have been advanced by, after the first.
        step_weights: Parameters that a step reads: all but those it looks up.
        tensorflow: Version of the exporter.
        graphs: A prefill of one row, and decodes of each width, for each precision.
    """

    model: dict[str, Any]
    seed: int
    length: int
    steps: int
    step_weights: int
    tensorflow: str
    graphs: tuple[Graph, ...]

    def write(self, directory: Path) -> None:
        """Writes the manifest beside its files."""
        (directory / FILE).write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, directory: Path) -> Self:
        """Reads a manifest."""
        content = json.loads((directory / FILE).read_text(encoding="utf-8"))
        graphs = tuple(
            Graph(
                **graph
                | {side: _arrays(graph[side]) for side in ("arguments", "results")}
                | {"aliases": tuple(graph["aliases"])}
            )
            for graph in content["graphs"]
        )
        return cls(**content | {"graphs": graphs})


def _arrays(items: Collection[dict[str, Any]]) -> tuple[Array, ...]:
    return tuple(Array(**item | {"shape": tuple(item["shape"])}) for item in items)


def random_weight(name: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Draws a weight: the same float32 numbers on every machine, from bits and exact operations.

    Matrices keep the size of what they multiply, so that a token depends on all layers and on all
    tokens before it; gains are about 1 and biases about 0.
    """
    bits = np.random.PCG64(np.random.SeedSequence([seed, crc32(name.encode())]))
    size = np.prod(shape, dtype=int).item()
    raw = bits.random_raw((size + 1) // 2).astype("<u8").view("<u4")[:size]
    # 24 bits, centred, from -1 to 1.
    uniform = (raw >> 8).astype(np.float32) * np.float32(2**-23) - np.float32(1)
    if len(shape) > 1:
        uniform *= np.float32((3 / min(shape)) ** 0.5)
    else:
        uniform *= np.float32(0.1)
        if name.endswith(".weight"):
            uniform += np.float32(1)
    return uniform.reshape(shape)


def probed_places(prompt_length: int, beams: int, steps: int) -> list[int]:
    """Positions of a row's cache to compare: the last of the prompt and the last of all tokens."""
    return [prompt_length - 1, prompt_length + beams * steps - 1]
