"""Time of a decode step, beside the time that reading its weights and its cache takes.

Uses random weights of the shapes of GPT-2 large and of Qwen3-0.6B, on a CPU with the native
kernels. Measures steps of rows with 100 tokens, on a graph that just fits them and on one of many
more positions, in turn with the memory's bandwidth.

Run by ``make bench-steps``.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from families.checkpoint import GPT2_LARGE, QWEN3, Shape, make_checkpoint
from generation.bandwidth import MemoryReader

from shaperouter_service import kernels
from shaperouter_service.decoding import Batch, DecodeProgram, Options
from shaperouter_service.models import DType, Model, load_model, resolve_cache_dtype

ROUNDS = 7
TOKENS, STEPS = 100, 16
ROWS = (1, 8)
SHORT = 128
# The models by name, and the positions of their long graphs.
SHAPES = {shape.name: shape for shape in (GPT2_LARGE, QWEN3)}
LONG = {GPT2_LARGE.name: 1024, QWEN3.name: 4096}
CACHES = ("float32", "bfloat16")
DTYPES = ("int4", "int8", "bfloat16", "float32")


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(prog="make bench-steps", description=__doc__)
    parser.add_argument("--only", choices=SHAPES, action="append", help="a model to measure")
    parser.add_argument("--dtype", choices=DTYPES, action="append", help="a type to measure")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds in turn (default: 7)")
    arguments = parser.parse_args()
    print(f"Kernels: {kernels.choose('auto')}", flush=True)
    reader = MemoryReader(os.cpu_count() or 1)
    columns = (
        "model | caches | rows | short, ms | long, ms | long ÷ short | floor, ms | short ÷ floor"
    )
    print(f"| {columns} |")
    print(f"|{8 * '---|'}", flush=True)
    for name in arguments.only or SHAPES:
        make_checkpoint(SHAPES[name])
        for dtype in arguments.dtype or DTYPES:
            _measure(SHAPES[name], dtype, reader, arguments.rounds)


def _measure(shape: Shape, dtype: DType, reader: MemoryReader, rounds: int) -> None:
    model = load_model(shape.label, shape.checkpoint, dtype, packed=True)
    models = {
        caches: replace(model, cache_dtype=resolve_cache_dtype(caches, dtype, packed=True))
        for caches in CACHES
    }
    calls = {
        (caches, rows, length): _steps(models[caches], rows, length)
        for rows in ROWS
        for caches in CACHES
        for length in (SHORT, LONG[shape.name])
    }
    times: dict[tuple[str, int, int], list[float]] = {key: [] for key in calls}
    speeds = []
    for _ in range(rounds):
        speeds.append(reader.bytes_per_second())
        for key, call in calls.items():
            begun = time.perf_counter()
            call()
            times[key].append((time.perf_counter() - begun) / STEPS)
    for rows in ROWS:
        for caches in CACHES:
            of_row = TOKENS * models[caches].kv_cache_bytes_per_token
            floors = [(model.weight_bytes + rows * of_row) / speed for speed in speeds]
            short, long = (times[caches, rows, length] for length in (SHORT, LONG[shape.name]))
            print(
                f"| {shape.label}, {dtype} | {caches} | {rows} "
                f"| {1000 * statistics.median(short):.1f} | {1000 * statistics.median(long):.1f} "
                f"| {_ratio(long, short)} | {1000 * statistics.median(floors):.1f} "
                f"| {_ratio(short, floors)} |",
                flush=True,
            )


def _ratio(times: list[float], others: list[float]) -> str:
    """The median of the ratios of each round, and the least and the greatest."""
    ratios = [mine / other for mine, other in zip(times, others, strict=True)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"


def _steps(model: Model, rows: int, length: int) -> Callable[[], None]:
    program = DecodeProgram("decode", model, rows=rows, beams=1, length=length)
    program.trace()
    program.compile()
    batch = Batch.of_shape(model, program.shape, beams=1)
    rng = np.random.default_rng(0)
    for row in range(rows):
        prompt = rng.integers(model.family.vocab_size, size=TOKENS).tolist()
        batch.begin(row, prompt, Options.of(max_new_tokens=STEPS + 2, num_beams=1), [1])
    state = batch.state

    def call() -> None:
        batch.advance(state, state)
        program(batch, range(rows), STEPS)

    call()
    return call


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    # As in the service: an interpreter may crash if it ends while TensorFlow's threads run.
    os._exit(0)
