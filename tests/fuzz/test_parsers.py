"""Each parser that meets strangers reads or refuses mutated inputs, soon, and keeps nothing."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import psutil
import pytest
from fuzz.parsers import CORPUS, PARSERS

from harness.mutation import mutated

COUNT = int(os.environ.get("FUZZ_INPUTS", "1000")) // len(PARSERS)
# Of the processor, as a busy machine may take longer.
MAX_SECONDS = 1.0
# Parsers keep what they have once compiled or imported, which the first inputs show.
WARM_UP, MAX_GROWTH = 4, 2**26


def kept(name: str) -> list[bytes]:
    """The inputs that are kept for a parser."""
    return [path.read_bytes() for path in sorted(Path(CORPUS, name).iterdir())]


@pytest.mark.parametrize("name", sorted(PARSERS))
@pytest.mark.timeout(1800)
def test_mutated_inputs_are_read_or_refused(name: str) -> None:
    seed = int(os.environ.get("FUZZ_SEED", random.SystemRandom().randrange(2**32)))
    print(f"FUZZ_SEED={seed}")
    source, inputs = random.Random(seed), kept(name)
    assert inputs
    for content in inputs:
        PARSERS[name](content)
    process, before, slowest = psutil.Process(), 0, 0.0
    for number in range(COUNT):
        if number == COUNT // WARM_UP:
            before = process.memory_info().rss
        content = mutated(source.choice(inputs), source)
        began = time.thread_time()
        try:
            PARSERS[name](content)
        except BaseException:
            print(f"{name}: {content!r}")
            raise
        seconds = time.thread_time() - began
        assert seconds < MAX_SECONDS, f"{name} took {seconds:.1f} s for {content!r}"
        slowest = max(slowest, seconds)
    grown = process.memory_info().rss - before
    print(f"{name}: {COUNT} inputs, slowest {slowest:.3f} s, grown by {grown} bytes")
    assert grown < MAX_GROWTH
