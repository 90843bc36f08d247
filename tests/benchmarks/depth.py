"""Cost of the number of layers in tracing, compiling and running graphs.

Uses random weights of GPT-2 small's width with 6, 12 and 36 layers, on a CPU with the native
kernels. Measures the seconds to trace and to compile a graph of each kind, and the milliseconds of
a step or of a prompt.

Run by ``make bench-depth``.
"""

import argparse
import gc
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from shaperouter_service.worker.xla_flags import xla_flags

# As a worker of such a model does; TensorFlow reads it once.
os.environ["XLA_FLAGS"] = xla_flags(os.environ.get("XLA_FLAGS", ""), only_kernels=True)

import numpy as np

from common.checkpoint import Size, make_checkpoint
from shaperouter_service import kernels
from shaperouter_service.decoding import Batch, DecodeProgram, Options, PrefillProgram
from shaperouter_service.decoding.program import Program
from shaperouter_service.models import load_model

BUILD = Path(__file__).parents[2] / "build" / "bench"
LAYERS = (6, 12, 36)
# Rows, beams and positions.
DECODE = ((1, 1, 128), (8, 1, 128), (1, 4, 512))
PREFILL = ((1, 128),)
PROMPT, STEPS = 16, 16
ROUNDS = 15


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, nargs="*", default=LAYERS, help="depths of models")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="calls of each graph")
    arguments = parser.parse_args()
    print(f"Kernels: {kernels.choose('auto')}")
    print("| layers | graph | trace, s | compile, s | step or prompt, ms: fastest | median |")
    print("|---|---|---|---|---|---|", flush=True)
    for layers in arguments.layers:
        directory = BUILD / f"gpt2-small-{layers}-layers"
        make_checkpoint(directory, Size(layers=layers, width=768, heads=12))
        model = load_model(directory.name, directory, "float32", packed=True)
        for rows, beams, length in DECODE:
            decode = DecodeProgram("decode", model, rows=rows, beams=beams, length=length)
            _measure(layers, decode, _steps(decode), arguments.rounds, STEPS)
        for rows, length in PREFILL:
            prefill = PrefillProgram("prefill", model, rows=rows, length=length, piece=length)
            _measure(layers, prefill, _prompt(prefill), arguments.rounds, 1)


def _measure(
    layers: int, program: Program, call: Callable[[], None], rounds: int, units: int
) -> None:
    # What earlier graphs and models left is not part of this one's trace.
    gc.collect()
    started = time.perf_counter()
    program.trace()
    traced = time.perf_counter()
    program.compile()
    compiled = time.perf_counter()
    times = []
    for _ in range(rounds):
        begun = time.perf_counter()
        call()
        times.append(1000 * (time.perf_counter() - begun) / units)
    print(
        f"| {layers} | {program.label} | {traced - started:.2f} | {compiled - traced:.2f} "
        f"| {min(times):.1f} | {statistics.median(times):.1f} |",
        flush=True,
    )


def _steps(program: DecodeProgram) -> Callable[[], None]:
    batch = _batch(program, PROMPT)
    state = batch.state

    def call() -> None:
        batch.advance(state, state)
        program(batch, range(program.rows), STEPS)

    return call


def _prompt(program: PrefillProgram) -> Callable[[], None]:
    batch = _batch(program, program.length)

    def call() -> None:
        program(batch, range(program.rows), 0)

    return call


def _batch(program: Program, prompt_tokens: int) -> Batch:
    model = program.model
    batch = Batch.of_shape(model, program.shape, beams=program.beams)
    rng = np.random.default_rng(0)
    for row in range(program.rows):
        prompt = rng.integers(model.family.vocab_size, size=prompt_tokens).tolist()
        # Beams start at a prompt's end; other rows continue after a token.
        generated = [] if program.beams > 1 else [1]
        options = Options.of(max_new_tokens=STEPS + 2, num_beams=program.beams)
        batch.begin(row, prompt, options, generated)
    return batch


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    # As in the service: an interpreter may crash if it ends while TensorFlow's threads run.
    os._exit(0)
