"""Cost of prefill for running streams, and gain of reading prompts together.

Uses GPT-2's small size with random weights. Measures, in turn in one run:

- the time between two tokens of a running stream while a prompt of 1000 tokens is read, whole and
  in pieces, and how much the pieces delay the prompt;
- the time to read 2, 4 and 8 short prompts together and one after the other.

Run by ``make bench-prefill``.
"""

import argparse
import os
import statistics
import sys
import time
from pathlib import Path

import numpy as np

from common.checkpoint import VOCABULARY, make_checkpoint
from harness.engine import Bench, Collected
from harness.tight import Case
from shaperouter_service.decoding import Batch, Options, PrefillProgram
from shaperouter_service.generation.run_events import NewTokens
from shaperouter_service.models import Model
from shaperouter_service.worker.run import Ended

BUILD = Path(__file__).parents[2] / "build" / "bench"
MODEL = "gpt2-small"
MAX_LENGTH = 1024
LONG_PROMPT, STREAM_TOKENS = 1000, 200
SHORT_PROMPT = 16
ROUNDS = 5


def main() -> None:
    """Measures and prints the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="number of measurements")
    rounds = parser.parse_args().rounds
    make_checkpoint(BUILD / MODEL)
    # A piece of the whole length means no pieces.
    benches = {piece: _bench(piece) for piece in (MAX_LENGTH, 256, 128, 64)}
    print(f"A prompt of {LONG_PROMPT} tokens beside a stream; milliseconds, medians of {rounds}:")
    print(f"{'piece':>6} {'token to token':>15} {'longest':>8} {'prompt to token':>16}")
    found: dict[int, list[tuple[float, float, float]]] = {piece: [] for piece in benches}
    for _ in range(rounds):
        for piece, bench in benches.items():
            found[piece].append(_beside_a_stream(bench))
    for piece, measured in found.items():
        typical, longest, first = (
            1000 * statistics.median(column) for column in zip(*measured, strict=True)
        )
        name = "whole" if piece == MAX_LENGTH else str(piece)
        print(f"{name:>6} {typical:>15.0f} {longest:>8.0f} {first:>16.0f}")
    print(f"\nPrompts of {SHORT_PROMPT} tokens; milliseconds, medians of {rounds}:")
    print(f"{'prompts':>8} {'in turn':>8} {'together':>9} {'ratio':>6}")
    model = benches[128].parts.lanes[MODEL, 1].model
    for prompts in (2, 4, 8):
        in_turn, together = _together(model, prompts, rounds)
        print(f"{prompts:>8} {in_turn:>8.0f} {together:>9.0f} {together / in_turn:>6.2f}")


def _bench(piece: int) -> Bench:
    bench = Bench({MODEL: BUILD / MODEL}, slots=2, prefill_piece=piece)
    stream = Case(prompt_tokens=3, new_tokens=STREAM_TOKENS)
    prompt = Case(prompt_tokens=LONG_PROMPT, new_tokens=2)
    bench.make_tight(MODEL, [stream], [prompt], [stream, prompt])
    _beside_a_stream(bench)
    return bench


def _beside_a_stream(bench: Bench) -> tuple[float, float, float]:
    """Median and longest time between a stream's tokens, and a prompt's time to first token."""
    rng = np.random.default_rng(0)
    stream = bench.submit(MODEL, [1, 2, 3], max_new_tokens=STREAM_TOKENS)
    _next_tokens(stream)
    started = time.perf_counter()
    prompt = bench.submit(
        MODEL, rng.integers(VOCABULARY, size=LONG_PROMPT).tolist(), max_new_tokens=2
    )
    gaps, before = [], time.perf_counter()
    while prompt.events.empty() and _next_tokens(stream):
        now = time.perf_counter()
        gaps.append(now - before)
        before = now
    _next_tokens(prompt)
    first = time.perf_counter() - started
    bench.engine.cancel(stream.run, MODEL)
    prompt.wait()
    return statistics.median(gaps), max(gaps), first


def _next_tokens(collected: Collected) -> bool:
    """Waits for tokens; returns whether the run continues."""
    while True:
        event = collected.next()
        if isinstance(event, NewTokens | Ended):
            return isinstance(event, NewTokens)


def _together(model: Model, prompts: int, rounds: int) -> tuple[float, float]:
    """Milliseconds to read prompts one after the other, and in one call."""
    one, all_ = (_program(model, rows) for rows in (1, prompts))
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for program, calls, found in ((one, prompts, times[0]), (all_, 1, times[1])):
            batch = Batch(model, rows=program.rows, beams=1, length=SHORT_PROMPT)
            for row in range(program.rows):
                batch.begin(row, [row + 1] * SHORT_PROMPT, Options.neutral())
            started = time.perf_counter()
            for _ in range(calls):
                program(batch, range(program.rows), 0)
            found.append(1000 * (time.perf_counter() - started))
    return statistics.median(times[0]), statistics.median(times[1])


def _program(model: Model, rows: int) -> PrefillProgram:
    program = PrefillProgram("prefill", model, rows=rows, length=SHORT_PROMPT, piece=SHORT_PROMPT)
    program.trace()
    program.compile()
    return program


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    # As in the service: an interpreter may crash if it ends while TensorFlow's threads run.
    os._exit(0)
