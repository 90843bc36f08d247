"""Cost of compilations for running streams, by the priority of the compilations.

Uses GPT-2's small size with random weights. Measures the tokens per second of streams while decode
graphs are compiled as in a worker, at normal priority (nice 0) or at a lower one, compared with the
same streams just before; and how long the graphs take. The priorities take turns in one run. Each
measurement has its own process, because XLA's threads keep the priority of the first compilation in
a process.

Run by ``make bench-compiling``.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from common.checkpoint import make_checkpoint

BUILD = Path(__file__).parents[2] / "build" / "bench"
MODEL = "gpt2-small"
PROMPT, STREAM_TOKENS = [1, 2, 3], 100
ALONE_SECONDS = 8.0
# Rows and lengths of the graphs to compile.
GRAPHS = ((2, 512), (8, 256))
NICE = (0, 5, 10)
STREAMS = (1, 4)
ROUNDS = 3


@dataclass(frozen=True)
class Found:
    """The results of a measurement.

    Attributes:
        alone: Tokens per second of all streams without compilations.
        beside: Tokens per second during compilations.
        longest: Longest pause of all streams during compilations, in seconds.
        seconds: Total compile time of the graphs.
    """

    alone: float
    beside: float
    longest: float
    seconds: float


def main() -> None:
    """Measures and prints the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="number of measurements")
    parser.add_argument(
        "--streams", type=int, nargs="*", default=STREAMS, help="numbers of running streams"
    )
    parser.add_argument(
        "--nice", type=int, nargs="*", default=NICE, help="priorities of compilations"
    )
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        [streams], [nice] = arguments.streams, arguments.nice
        print(json.dumps(asdict(_measure(streams, nice))), flush=True)
        # As in the service: an interpreter may crash if it ends while TensorFlow's threads run.
        os._exit(0)
    make_checkpoint(BUILD / MODEL)
    for streams in arguments.streams:
        found: dict[int, list[Found]] = {nice: [] for nice in arguments.nice}
        for _ in range(arguments.rounds):
            for nice in arguments.nice:
                found[nice].append(_measured_apart(streams, nice))
        _print(streams, found, arguments.rounds)


def _print(streams: int, found: dict[int, list[Found]], rounds: int) -> None:
    print(f"\n{streams} running; medians of {rounds}, and the largest deviation of a share:")
    print("| compiled at | share of the tokens | longest, ms | seconds to compile |")
    print("|---|---|---|---|")
    for nice, measured in found.items():
        shares = [one.beside / one.alone for one in measured]
        share = statistics.median(shares)
        spread = max(abs(one / share - 1) for one in shares)
        longest = 1000 * statistics.median(one.longest for one in measured)
        seconds = statistics.median(one.seconds for one in measured)
        print(
            f"| nice {nice} | {share:.2f} ±{spread:.0%} | {longest:.0f} | {seconds:.1f} |",
            flush=True,
        )


def _measured_apart(streams: int, nice: int) -> Found:
    command = [sys.executable, __file__, "--one", f"--streams={streams}", f"--nice={nice}"]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return Found(**json.loads(output.splitlines()[-1]))


def _measure(streams: int, nice: int) -> Found:
    """Runs streams alone and beside compilations."""
    # Imported here: the process that prints does not need TensorFlow.
    from harness.engine import Bench
    from harness.tight import Case
    from harness.waiting import wait_until
    from shaperouter_service.generation.run_events import NewTokens
    from shaperouter_service.system import process
    from shaperouter_service.worker.run import Ended

    process.NICE = nice
    bench = Bench({MODEL: BUILD / MODEL}, slots=8)
    case = Case(prompt_tokens=len(PROMPT), new_tokens=STREAM_TOKENS)
    bench.make_tight(MODEL, [case], [case] * streams)
    times: list[tuple[float, int]] = []

    def stream() -> None:
        while True:
            running = bench.submit(MODEL, PROMPT, max_new_tokens=STREAM_TOKENS)
            while not isinstance(event := running.next(), Ended):
                if isinstance(event, NewTokens):
                    times.append((time.perf_counter(), len(event.token_ids)))

    for _ in range(streams):
        threading.Thread(target=stream, daemon=True).start()

    def rate(wait: Callable[[], None]) -> tuple[float, float, float]:
        """Tokens per second during a wait, the longest pause, and the seconds of the wait."""
        times.clear()
        started = time.perf_counter()
        wait()
        seconds, seen = time.perf_counter() - started, list(times)
        ends = [started, *(at for at, _ in seen)]
        longest = max((after - before for before, after in itertools.pairwise(ends)))
        return sum(tokens for _, tokens in seen) / seconds, longest, seconds

    # Ignore the first tokens of each stream.
    rate(lambda: time.sleep(ALONE_SECONDS / 2))
    alone, _, _ = rate(lambda: time.sleep(ALONE_SECONDS))
    ladders, table = bench.parts.ladders[MODEL], bench.parts.graphs
    graphs = [
        table.request_compile(
            ladders.decode(MODEL, rows=rows, length=length, beams=1), urgent=False
        )
        for rows, length in GRAPHS
    ]
    beside, longest, seconds = rate(
        lambda: wait_until(lambda: all(graph.has_ended for graph in graphs))
    )
    return Found(alone=alone, beside=beside, longest=longest, seconds=seconds)


if __name__ == "__main__":
    main()
