"""Writes the engine's graphs as StableHLO, with inputs and results for checking another runtime.

    make gpu-export

Makes a GPT-2 with random weights, reads prompts and decodes with the graphs that a worker would
run, and writes the graphs and their results to build/gpu. Weights are drawn from a seed, so that
only small files have to be copied to the machine where run.py runs the graphs.
"""

import argparse
import gzip
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf
from manifest import (
    DECODE,
    FIRST,
    PRECISIONS,
    PREFILL,
    Array,
    Graph,
    Manifest,
    expected_file,
    inputs_file,
    probed_places,
    random_weight,
)

from shaperouter_service.decoding import MAX_STEPS as STEPS
from shaperouter_service.decoding import (
    Batch,
    DecodeProgram,
    Options,
    PrefillProgram,
    Program,
)
from shaperouter_service.generation.limits import MAX_TOP_LOGPROBS
from shaperouter_service.models import DeviceKind, Model, Weights
from shaperouter_service.models.config import Config
from shaperouter_service.models.gpt2 import GPT2
from shaperouter_service.routing.ladders import PREFILL_PIECE

# Weights whose rows a step looks up, so that it reads only a few.
LOOKED_UP = {"wpe.weight"}

STABLEHLO_TYPES = {
    "bool": "i1",
    "int32": "i32",
    "uint32": "ui32",
    "float32": "f32",
    "bfloat16": "bf16",
}


class RandomCheckpoint:
    """A checkpoint whose weights are drawn from a seed."""

    names = ("wte.weight",)

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def read(self, name: str, *, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """See `Checkpoint`."""
        return random_weight(name, shape, self._seed).astype(dtype)


def make_model(config: dict[str, Any], seed: int, dtype: tf.DType) -> Model:
    """A GPT-2 with weights from a seed."""
    family = GPT2.from_config(Config(Path("config.json"), config))
    weights = {
        name: tf.Variable(array, trainable=False, name=name)
        for name, array in family.read_weights(
            RandomCheckpoint(seed), np.dtype(dtype.as_numpy_dtype)
        )
    }
    parameters = sum(weight.shape.num_elements() for weight in weights.values())
    return Model(
        name="random",
        family=family,
        weights=Weights(weights, DeviceKind.GPU),
        dtype=dtype,
        weight_dtype=dtype,
        parameters=parameters,
        weight_bytes=parameters * dtype.size,
        encoder_weight_bytes=0,
        decoder_start_token_id=None,
        default_options={},
    )


def make_requests(model: Model, *, rows: int, beams: int, length: int, seed: int) -> list[Batch]:
    """Requests with greedy or beam search, each in its own batch, before prefill.

    The first attends to all places of the cache when it has made its first token and all steps.
    """
    rng = np.random.default_rng(seed)
    longest = length - beams * STEPS
    requests = []
    for row in range(rows):
        prompt_length = longest if row == 0 else rng.integers((longest + 1) // 2, longest + 1)
        prompt = rng.integers(model.family.vocab_size, size=prompt_length)
        batch = Batch(model, rows=1, beams=beams, length=length)
        # No row may end, not even by its last token.
        options = Options.of(max_new_tokens=STEPS + 2, num_beams=beams, logprobs=MAX_TOP_LOGPROBS)
        batch.begin(0, prompt.tolist(), options)
        requests.append(batch)
    return requests


def read_prompt(program: PrefillProgram, batch: Batch) -> None:
    """Runs the prefill of a batch of one row."""
    start = 0
    while not program(batch, [0], start).is_last:
        start += program.piece


def gather(requests: Sequence[Batch], rows: int) -> Batch:
    """The batch of the first `rows` requests."""
    first = requests[0]
    batch = Batch(first.model, rows=rows, beams=first.beams, length=first.length)
    for row in range(rows):
        batch.copy_row(row, requests[row], 0)
    return batch


def probe(batch: Batch) -> np.ndarray:
    """Some positions of the first row's caches, [2 L, H, positions, D] float32."""
    places = probed_places(int(batch.state.prompt_lengths[0]), batch.beams, STEPS)
    return np.stack(
        [
            tf.cast(
                tf.gather(
                    tf.raw_ops.ReadVariableOp(resource=handle, dtype=batch.model.dtype)[0, 0],
                    places,
                    axis=1,
                ),
                tf.float32,
            ).numpy()
            for handle in batch.caches.tokens
        ]
    )


def named(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The leaves of nested named tuples with their paths, in TensorFlow's order."""
    if not isinstance(value, tuple):
        yield name, value
        return
    for field in getattr(value, "_fields", ()):
        yield from named(f"{name}/{field}", getattr(value, field))


def export(program: Program, kind: str, precision: str, directory: Path) -> Graph:
    """Writes the StableHLO of a program, and prepares its compilation."""
    inputs, outputs = program._idle_arguments(program._new_batch()), program._results
    lowered = program.lower()
    program.load(lowered)
    if isinstance(program, PrefillProgram):
        given = [("logits", outputs)]
    else:
        found = outputs.state, outputs.steps, outputs.logprobs
        given = zip(("state", "made", "logprobs"), found, strict=True)
    arguments = _arrays(inputs[0]._asdict().items())
    family, dtype = program.model.family, program.model.dtype.name
    shape = (program.rows, 1, family.heads, program.length, family.head_size)
    caches = [_array(f"cache/{index}", shape, dtype) for index in range(2 * family.layers)]
    arguments += caches
    arguments += [
        _array(f"weight/{name}", program.model.weights[name].shape, dtype)
        for name in lowered.weights
    ]
    results = _arrays(given) + caches
    graph = Graph(
        kind=kind,
        precision=precision,
        rows=program.rows,
        beams=program.beams,
        piece=program.piece if isinstance(program, PrefillProgram) else 0,
        arguments=tuple(arguments),
        results=tuple(results),
        # Caches take the memory of their arguments.
        aliases=tuple(arguments.index(array) if array in caches else None for array in results),
    )
    _check(lowered.module, graph)
    with gzip.GzipFile(directory / graph.module, "wb", mtime=0) as file:
        file.write(lowered.module.encode())
    return graph


def _check(text: str, graph: Graph) -> None:
    """Compares a module with the manifest.

    Raises:
        ValueError: They differ, or there is something that not every platform has.
    """
    foreign = Counter(re.findall(r"\b(?:mhlo\.\w+|chlo\.\w+|stablehlo\.custom_call @\w+)", text))
    if foreign:
        raise ValueError(f"{graph.module}: is not portable, it has {dict(foreign)}")
    signature = re.search(r"func\.func @main\((.*)\) -> \((.*)\) \{", text)
    if signature is None:
        raise ValueError(f"{graph.module}: has no main function")
    for found, arrays in zip(signature.groups(), (graph.arguments, graph.results), strict=True):
        types = re.findall(r"tensor<(\w+)>", found)
        if types != [_type(array) for array in arrays]:
            raise ValueError(f"{graph.module}: has other arguments or results than expected")


def _arrays(parts: Iterable[tuple[str, Any]]) -> list[Array]:
    return [
        _array(name, leaf.shape, leaf.dtype)
        for part, leaves in parts
        for name, leaf in named(part, leaves)
    ]


def _array(name: str, shape: Sequence[int], dtype: Any) -> Array:
    return Array(name=name, shape=tuple(shape), dtype=tf.as_dtype(dtype).name)


def _type(array: Array) -> str:
    return "x".join([*map(str, array.shape), STABLEHLO_TYPES[array.dtype]])


def stacked(requests: Sequence[Batch]) -> dict[str, np.ndarray]:
    """States and options of all requests, by name."""
    each = [
        dict([*named("state", batch.state), *named("options", batch.options)]) for batch in requests
    ]
    return {name: np.concatenate([leaves[name] for leaves in each]) for name in each[0]}


def export_precision(
    arguments: argparse.Namespace, config: dict[str, Any], precision: str
) -> Iterator[Graph]:
    """Exports the graphs of a precision, and their results on this machine."""
    model = make_model(config, arguments.seed, tf.as_dtype(precision))
    length = arguments.length
    prefill = PrefillProgram("prefill", model, rows=1, length=length, piece=PREFILL_PIECE)
    yield export(prefill, PREFILL, precision, arguments.output)
    for beams in arguments.beams:
        decodes = [
            DecodeProgram("decode", model, rows=rows, beams=beams, length=length)
            for rows in arguments.rows
        ]
        for decode in decodes:
            yield export(decode, DECODE, precision, arguments.output)
        compute(prefill, decodes, arguments, beams)


def compute(
    prefill: PrefillProgram,
    decodes: Sequence[DecodeProgram],
    arguments: argparse.Namespace,
    beams: int,
) -> None:
    """Writes the inputs and results of the graphs of a precision and beam width."""
    directory, model = arguments.output, prefill.model
    requests = make_requests(
        model, rows=max(arguments.rows), beams=beams, length=prefill.length, seed=arguments.seed
    )
    np.savez_compressed(directory / inputs_file(beams), **stacked(requests))
    for request in requests:
        read_prompt(prefill, request)
    for decode in decodes:
        batch = gather(requests, decode.rows)
        expected: dict[str, np.ndarray] = {}
        for part, steps in ((FIRST, 1), (DECODE, STEPS)):
            decoded = decode(batch, range(decode.rows), steps)
            expected |= _prefixed(part, named("logprobs", decoded.logprobs))
            expected |= _prefixed(part, named("state", batch.state))
        expected[f"{DECODE}/caches"] = probe(batch)
        file = expected_file(model.dtype.name, decode.rows, beams)
        np.savez_compressed(directory / file, **expected)


def _prefixed(prefix: str, leaves: Iterable[tuple[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {f"{prefix}/{name}": leaf for name, leaf in leaves}


def parse_arguments() -> argparse.Namespace:
    """Parses the command line, whose defaults are those of GPT-2 small."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=Path("build/gpu"), help="directory to fill")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 64], help="R of decodes")
    parser.add_argument("--beams", type=int, nargs="+", default=[1], help="B")
    parser.add_argument("--length", type=int, default=128, help="T, positions of the cache")
    parser.add_argument(
        "--precision", nargs="+", choices=PRECISIONS, default=list(PRECISIONS), help="of weights"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of weights and prompts")
    dimensions = parser.add_argument_group("dimensions of the model")
    dimensions.add_argument("--layers", type=int, default=12, help="L")
    dimensions.add_argument("--width", type=int, default=768, help="E")
    dimensions.add_argument("--heads", type=int, default=12, help="H")
    dimensions.add_argument("--vocabulary", type=int, default=50257, help="V")
    dimensions.add_argument("--positions", type=int, default=1024, help="longest sequence")
    arguments = parser.parse_args()
    if arguments.length <= max(arguments.beams) * STEPS:
        parser.error(f"--length must be over {STEPS} times the beams, got {arguments.length}")
    if arguments.length >= arguments.positions:
        # The token after the last step has a place in the sequence, but none in the cache.
        parser.error(f"--length must be under --positions, got {arguments.length}")
    return arguments


def main() -> None:
    """Writes all files, the manifest last."""
    arguments = parse_arguments()
    directory: Path = arguments.output
    directory.mkdir(parents=True, exist_ok=True)
    config = {
        "model_type": "gpt2",
        "vocab_size": arguments.vocabulary,
        "n_positions": arguments.positions,
        "n_embd": arguments.width,
        "n_layer": arguments.layers,
        "n_head": arguments.heads,
    }
    # As the engine does; read when a graph is traced.
    tf.config.experimental.enable_tensor_float_32_execution(False)
    graphs = []
    for precision in arguments.precision:
        for graph in export_precision(arguments, config, precision):
            print(f"{directory / graph.module}")
            graphs.append(graph)
    weights = [array for array in graphs[0].arguments if array.name.startswith("weight/")]
    Manifest(
        model=config,
        seed=arguments.seed,
        length=arguments.length,
        steps=STEPS,
        step_weights=sum(
            math.prod(array.shape)
            for array in weights
            if array.name.removeprefix("weight/") not in LOOKED_UP
        ),
        tensorflow=tf.__version__,
        graphs=tuple(graphs),
    ).write(directory)


if __name__ == "__main__":
    main()
