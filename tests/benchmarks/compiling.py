"""What compilations cost those who stream meanwhile, by how they are made.

Of GPT-2's small size with random weights, in turn in one run: the time of a token of running
streams while one or two decode graphs are made as a worker's compile threads make them, at the
same priority as everything else or at a lower one, traced in the process that serves or in one of
its own; and how long these take.

Run by ``make bench-compiling``.
"""

import argparse
import itertools
import os
import statistics
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from common.checkpoint import make_checkpoint
from harness.engine import Bench, Collected
from harness.tight import Case
from harness.waiting import wait_until
from shaperouter_service.decoding import DecodeProgram
from shaperouter_service.graphs import TracingProcess
from shaperouter_service.graphs.table import COMPILE_STACK_BYTES
from shaperouter_service.models import Model
from shaperouter_service.worker.run import Ended, NewTokens

BUILD = Path(__file__).parents[2] / "build" / "bench"
MODEL = "gpt2-small"
STREAM_TOKENS = 1000
IDLE_SECONDS = 5.0
# A tenth of the weight of a thread that serves, where both want a core.
NICE = 10
ROUNDS = 4
FOREVER = 1e6

_names = itertools.count()


@dataclass(frozen=True)
class Setting:
    """What is done beside the streams: nothing where `threads` is 0."""

    threads: int
    nice: int = 0
    apart: bool = False

    def __str__(self) -> str:
        if not self.threads:
            return "0"
        return f"{self.threads}, nice {self.nice}{', traced apart' if self.apart else ''}"


SETTINGS = (
    Setting(0),
    Setting(1),
    Setting(1, apart=True),
    Setting(1, NICE),
    Setting(2),
    Setting(2, apart=True),
    Setting(2, NICE),
)


@dataclass(frozen=True)
class Found:
    """Of one measurement, in seconds: a token's time in the median and at the longest, and the time
    until all was compiled."""

    typical: float
    longest: float
    compiling: float


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="measurements of each")
    parser.add_argument(
        "--threads", type=int, nargs="*", default=[1, 2], help="how many compile meanwhile"
    )
    parser.add_argument("--streams", type=int, nargs="*", default=[1], help="how many run")
    arguments = parser.parse_args()
    make_checkpoint(BUILD / MODEL)
    bench = Bench({MODEL: BUILD / MODEL}, slots=8)
    settings = [one for one in SETTINGS if one.threads in (0, *arguments.threads)]
    tracing = TracingProcess([bench.engine._models[MODEL]], idle=FOREVER)
    tracing.lower(_program(bench.engine._models[MODEL]))
    case = Case(prompt_tokens=3, new_tokens=STREAM_TOKENS)
    for streams in arguments.streams:
        bench.make_tight(MODEL, [case], [case] * streams)
        _measure(bench, streams, Setting(0), tracing)
        found: dict[Setting, list[Found]] = {setting: [] for setting in settings}
        for _ in range(arguments.rounds):
            for setting in settings:
                found[setting].append(_measure(bench, streams, setting, tracing))
        _print(streams, found, arguments.rounds)


def _print(streams: int, found: dict[Setting, list[Found]], rounds: int) -> None:
    print(f"\n{streams} running; medians of {rounds}, and the largest deviation of a ratio:")
    print("| compile threads | ms a token | longest | times as long | seconds to compile |")
    print("|---|---|---|---|---|")
    alone = found[Setting(0)]
    for setting, measured in found.items():
        ratios = [one.typical / base.typical for one, base in zip(measured, alone, strict=True)]
        ratio = statistics.median(ratios)
        spread = max(abs(one / ratio - 1) for one in ratios)
        typical = 1000 * statistics.median(one.typical for one in measured)
        longest = 1000 * statistics.median(one.longest for one in measured)
        compiling = statistics.median(one.compiling for one in measured)
        took = f"{compiling:.1f}" if setting.threads else ""
        print(
            f"| {setting} | {typical:.0f} | {longest:.0f} | {ratio:.2f} ±{spread:.0%} | {took} |",
            flush=True,
        )


def _measure(bench: Bench, streams: int, setting: Setting, tracing: TracingProcess) -> Found:
    """Runs streams beside what is compiled."""
    running = _streaming(bench, streams)
    model = bench.engine._models[MODEL]
    started = time.perf_counter()
    compiling = _compile(model, setting, tracing)
    times, before = [], time.perf_counter()
    while (
        any(thread.is_alive() for thread in compiling)
        if compiling
        else time.perf_counter() - started < IDLE_SECONDS
    ):
        tokens = _tokens(running[0])
        if not tokens:
            running = _streaming(bench, streams)
        now = time.perf_counter()
        if tokens:
            times.append((now - before) / tokens)
        before = now
    for stream in running:
        bench.engine.cancel(stream.run, MODEL)
    # What was cancelled says nothing any more: the next measurement starts when its slots are free.
    wait_until(lambda: not any(lane.active_slots for lane in bench.engine._lanes.values()))
    return Found(statistics.median(times), max(times), time.perf_counter() - started)


def _streaming(bench: Bench, streams: int) -> list[Collected]:
    """Streams that run in one batch."""
    running = [bench.submit(MODEL, [1, 2, 3], max_new_tokens=STREAM_TOKENS) for _ in range(streams)]
    for stream in running:
        _tokens(stream)
    for _ in range(3):
        _tokens(running[0])
    return running


def _tokens(stream: Collected) -> int:
    """Waits for tokens of a stream; returns how many, 0 at its end."""
    while True:
        match stream.next():
            case NewTokens(token_ids=token_ids):
                return len(token_ids)
            case Ended():
                return 0


def _program(model: Model) -> DecodeProgram:
    return DecodeProgram(f"beside{next(_names)}", model, rows=2, beams=1, length=256)


def _compile(model: Model, setting: Setting, tracing: TracingProcess) -> list[threading.Thread]:
    """Makes a graph on each of some threads; as a worker does, one is traced at a time."""
    one_at_a_time = threading.Lock()

    def make() -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), setting.nice)
        program = _program(model)
        with one_at_a_time:
            program.load(tracing.lower(program) if setting.apart else program.lower())
        program.compile()

    default_stack = threading.stack_size(COMPILE_STACK_BYTES)
    threads = [threading.Thread(target=make, daemon=True) for _ in range(setting.threads)]
    for thread in threads:
        thread.start()
    threading.stack_size(default_stack)
    return threads


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    # As the service does: an interpreter that ends around TensorFlow's threads may crash.
    os._exit(0)
