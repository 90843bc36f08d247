"""Repeats fifty concurrent streams and checks that slots are freed and memory does not grow.

    make soak

Streams prompts of random lengths to the embedded model, and cancels some of the streams after a few
tokens: a third of them, or --cancelled. The first round compiles the graphs that the traffic needs;
later rounds must not grow what router and worker use. After each round, when nothing runs, their
memory, threads and file descriptors are sampled, the series of /metrics and the size of the compile
cache. With enough rounds, the slope of each over the later three quarters is reported, with a
margin of 95 % confidence. Exits with 1 if a stream fails or a slot stays held.

    make soak BENCH='--hours 6 --save build/soak.json'

With --hours, all graphs that the traffic can use are compiled first: otherwise a rare shape adds a
graph after hours, and its memory looks like growth.

Each process also tells what malloc has given out and what it holds back, and how many blocks Python
has given out (`heap_probe`).
"""

import argparse
import json
import os
import random
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import psutil
from rich.console import Console
from rich.table import Table

from harness.memory import private_mebibytes
from harness.service import Service, serving
from harness.trends import trend_table
from harness.waiting import wait_until
from shaperouter import Client

STREAMS = 50
HEAP_PROBE = Path(__file__).parent / "heap_probe"
console = Console()


def heap(role: str, pid: int, probes: Path) -> dict[str, float]:
    """What a process has allocated, by the names of quantities."""
    (probes / f"{pid}.ask").write_text("")
    used, free, blocks = map(int, (probes / f"{pid}.answer").read_text().split())
    return {
        f"{role} malloc, used, in MiB": used / 2**20,
        f"{role} malloc, free, in MiB": free / 2**20,
        f"{role} blocks of Python": blocks,
    }


def sample(service: Service, cache: Path, probes: Path) -> dict[str, float]:
    """The quantities at this moment, by their names."""
    found: dict[str, float] = {}
    for role, pid in (("router", service.process.pid), ("worker", service.worker_pid())):
        process = psutil.Process(pid)
        found[f"{role} memory in MiB"] = private_mebibytes(process)
        found |= heap(role, pid, probes)
        found[f"{role} threads"] = process.num_threads()
        found[f"{role} descriptors"] = process.num_fds()
    files = (path for path in cache.rglob("*") if path.is_file())
    found["series"] = len(service.metrics())
    found["compile cache in MiB"] = sum(path.stat().st_size for path in files) / 2**20
    return found


def probe_environment(probes: str) -> dict[str, str]:
    """The environment of a service whose processes have a heap probe."""
    path = [str(HEAP_PROBE), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"HEAP_PROBE": probes, "PYTHONPATH": os.pathsep.join(path)}


def trends(samples: list[dict[str, float]]) -> Table | None:
    """A table of slopes; None if there are too few samples."""
    columns = {name: [each[name] for each in samples] for name in samples[0]}
    hours = [seconds / 3600 for seconds in columns.pop("seconds")]
    return trend_table(hours, columns)


def one_round(
    client: Client, rng: random.Random, vocab_size: int, max_length: int, *, cancelled: float
) -> list[str]:
    """Runs the streams and cancels this share of them; returns the problems."""
    problems: list[str] = []

    def stream(prompt: list[int], limit: int, leaves_after: int | None) -> None:
        received = 0
        try:
            with client.stream(prompt, max_new_tokens=limit) as deltas:
                for delta in deltas:
                    received += len(delta.token_ids)
                    if leaves_after is not None and received >= leaves_after:
                        return
            if received != deltas.result.usage.generated_tokens:
                problems.append(f"{received} tokens of {deltas.result.usage.generated_tokens}")
        # The soak test reports any error.
        except Exception as error:
            problems.append(repr(error))

    threads = []
    for _ in range(STREAMS):
        prompt = [rng.randrange(vocab_size) for _ in range(rng.randint(1, max_length // 2))]
        limit = rng.randint(1, max_length - len(prompt))
        leaves_after = rng.randint(1, limit) if rng.random() < cancelled else None
        threads.append(threading.Thread(target=stream, args=[prompt, limit, leaves_after]))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return problems


def compile_all(client: Client) -> None:
    """Makes all graphs ready that greedy streams can use."""
    wanted = [
        graph.signature
        for graph in client.graphs(include_cold=True)
        if graph.signature.kind in ("prefill", "decode") and graph.signature.beams == 1
    ]
    *_, final = client.warm_graphs(wanted)
    failed = [graph for graph in final if graph.error]
    if failed:
        raise RuntimeError(f"graphs failed: {failed}")


def settled(service: Service) -> None:
    """Waits until nothing runs and nothing is being compiled."""
    wait_until(lambda: service.metric("shaperouter_slots", state="active") == 0)
    for state in ("tracing", "compiling"):
        wait_until(lambda state=state: service.metric("shaperouter_graphs", state=state) == 0)


def main() -> int:
    """Runs the rounds, and prints a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=8, help="rounds of 50 streams (default: 8)")
    parser.add_argument("--hours", type=float, help="time to repeat rounds, in place of --rounds")
    parser.add_argument(
        "--cancelled", type=float, default=1 / 3, help="share of cancelled streams (default: 1/3)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the traffic (default: 0)")
    parser.add_argument("--save", type=Path, help="file to write the samples to, as JSON")
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    table = Table("round", "seconds", "problems", "graphs", "router MiB", "worker MiB")
    samples: list[dict[str, float]] = []
    failed = False
    began = time.monotonic()

    def more() -> bool:
        if arguments.hours is None:
            return len(samples) < arguments.rounds
        return time.monotonic() - began < 3600 * arguments.hours

    with (
        tempfile.TemporaryDirectory() as name,
        tempfile.TemporaryDirectory() as probes,
        serving(f"--compile-cache={name}", env=probe_environment(probes)) as service,
        Client(service.address) as client,
    ):
        (model,) = client.models()
        if arguments.hours is not None:
            with console.status("compiling the graphs"):
                compile_all(client)
        while more():
            started = time.monotonic()
            with console.status(f"round {len(samples) + 1}"):
                problems = one_round(
                    client,
                    rng,
                    model.vocab_size,
                    model.max_length,
                    cancelled=arguments.cancelled,
                )
                seconds = time.monotonic() - started
                settled(service)
            failed = failed or bool(problems)
            console.print(*problems, sep="\n", end="")
            samples.append(
                {"seconds": time.monotonic() - began} | sample(service, Path(name), Path(probes))
            )
            table.add_row(
                str(len(samples)),
                f"{seconds:.1f}",
                str(len(problems)),
                f"{service.metric('shaperouter_graphs', state='ready'):.0f}",
                f"{samples[-1]['router memory in MiB']:.0f}",
                f"{samples[-1]['worker memory in MiB']:.0f}",
            )
            if arguments.save:
                arguments.save.write_text(json.dumps(samples), encoding="utf-8")
    console.print(table)
    if (slopes := trends(samples)) is not None:
        console.print(slopes)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
