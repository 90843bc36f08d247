"""Prompts with the same prefix, with the prefix cache and without it.

A worker that keeps beginnings of prompts and one that does not serve the same requests, in turn:

- prompts of 1,000 common tokens and some of their own: the time to the first token;
- prompts that share nothing: the time of a whole request, and the time to its first token, until
  the cache is full and once it is. A cache that fills takes new memory from the operating system.

The model has GPT-2's small size and random weights, or the shape of Qwen3-0.6B.

Run by ``make bench-prefix``.
"""

import argparse
import os
import statistics
import sys
import time
from pathlib import Path

import numpy as np
from families.checkpoint import QWEN3
from families.checkpoint import make_checkpoint as make_shape

from common.checkpoint import VOCABULARY, make_checkpoint
from harness.engine import Bench
from harness.tight import Case
from shaperouter_service.generation.run_events import NewTokens

BUILD = Path(__file__).parents[2] / "build" / "bench"
MAX_LENGTH = 1024
COMMON, OWN, NEW_TOKENS = 1000, 8, 8
# A request that shares nothing: a short prompt, where copies weigh most beside reading it.
STRANGER_PROMPT, STRANGER_TOKENS = 128, 16
# The default of --prefix-cache-memory.
MEMORY = 512 * 10**6


def main() -> None:
    """Measures and prints the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=["gpt2", "qwen3"], default="gpt2")
    parser.add_argument("--requests", type=int, default=100, help="requests that share")
    parser.add_argument(
        "--strangers", type=int, default=100, help="requests that share nothing, with a full cache"
    )
    parser.add_argument(
        "--every", type=int, default=5, help="how many requests share for one that reads all"
    )
    parser.add_argument("--slots", type=int, default=1, help="slots of each engine (default: 1)")
    arguments = parser.parse_args()
    name, directory = arguments.model, BUILD / "gpt2-small"
    if name == "gpt2":
        make_checkpoint(directory)
    else:
        make_shape(QWEN3)
        directory = QWEN3.checkpoint
    keeping, reading = (_bench(name, directory, size, arguments.slots) for size in (MEMORY, 0))
    rng = np.random.default_rng(0)
    common = _tokens(rng, COMMON)
    _request(keeping, name, [*common, *_tokens(rng, OWN)], NEW_TOKENS)
    shared: list[float] = []
    whole: list[float] = []
    for number in range(arguments.requests):
        prompt = [*common, *_tokens(rng, OWN)]
        shared.append(_request(keeping, name, prompt, NEW_TOKENS)[0])
        if number % arguments.every == 0:
            whole.append(_request(reading, name, prompt, NEW_TOKENS)[0])
    print(
        f"{name}, {COMMON} common tokens and {OWN} own: milliseconds to the first token, medians "
        f"of {len(shared)} requests that share and {len(whole)} that do not"
    )
    kept, read = 1000 * statistics.median(shared), 1000 * statistics.median(whole)
    print(f"  kept {kept:.1f}, read {read:.1f}, ratio {kept / read:.3f}")
    strangers = _Strangers(name, keeping, reading, rng)
    print(
        f"{name}, {STRANGER_PROMPT} tokens that nothing shares and {STRANGER_TOKENS} new ones: "
        "milliseconds, medians"
    )
    while not strangers.is_full:
        strangers.measure()
    strangers.report("until the cache is full")
    for _ in range(arguments.strangers):
        strangers.measure()
    strangers.report("with a full cache")


class _Strangers:
    """Requests that share nothing, to both engines in turn.

    Attributes:
        is_full: Whether the cache of prefixes has evicted blocks.
    """

    def __init__(self, name: str, keeping: Bench, reading: Bench, rng: np.random.Generator) -> None:
        self._name, self._keeping, self._reading, self._rng = name, keeping, reading, rng
        self._pairs: list[tuple[tuple[float, float], tuple[float, float]]] = []

    @property
    def is_full(self) -> bool:
        snapshot = self._keeping.engine.snapshot("worker", "")
        return any(report.evictions for report in snapshot.prefixes)

    def measure(self) -> None:
        """Sends both engines a prompt, in changing order."""
        prompt = _tokens(self._rng, STRANGER_PROMPT)
        benches = [self._keeping, self._reading]
        if len(self._pairs) % 2:
            benches.reverse()
        found = {bench: _request(bench, self._name, prompt, STRANGER_TOKENS) for bench in benches}
        self._pairs.append((found[self._keeping], found[self._reading]))

    def report(self, when: str) -> None:
        """Prints the pairs since the last report."""
        print(f"  {when}, {len(self._pairs)} pairs")
        for index, label in enumerate(["first token", "until the next request can run"]):
            pairs = [(keeping[index], reading[index]) for keeping, reading in self._pairs]
            keeps, reads = (1000 * statistics.median(column) for column in zip(*pairs, strict=True))
            ratio = statistics.median(kept / read for kept, read in pairs)
            print(
                f"    {label}: keeping {keeps:.1f}, not {reads:.1f}, median of ratios {ratio:.4f}"
            )
        self._pairs.clear()


def _bench(name: str, directory: Path, memory: int, slots: int) -> Bench:
    bench = Bench({name: directory}, slots=slots, max_length=MAX_LENGTH, prefix_cache_bytes=memory)
    long = Case(prompt_tokens=COMMON + OWN, new_tokens=NEW_TOKENS)
    stranger = Case(prompt_tokens=STRANGER_PROMPT, new_tokens=STRANGER_TOKENS)
    bench.make_tight(name, [long], [stranger])
    bench.stop_compiling()
    return bench


def _tokens(rng: np.random.Generator, count: int) -> list[int]:
    found: list[int] = rng.integers(VOCABULARY - 1, size=count).tolist()
    return found


def _request(bench: Bench, name: str, prompt: list[int], new_tokens: int) -> tuple[float, float]:
    """Seconds to the first token of a request, and until its slot is free for the next one."""
    started = time.perf_counter()
    run = bench.submit(name, prompt, max_new_tokens=new_tokens)
    while not isinstance(run.next(), NewTokens):
        pass
    first = time.perf_counter() - started
    run.wait()
    # A call of the device thread that waits until it has kept what the request left.
    probe = bench.submit(name, [1], max_new_tokens=1)
    probe.wait()
    return first, time.perf_counter() - started


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    # As in the service: an interpreter may crash if it ends while TensorFlow's threads run.
    os._exit(0)
