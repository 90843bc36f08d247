"""Repeats fifty concurrent streams and checks that slots are freed and memory does not grow.

    make soak

Streams prompts of random lengths to the embedded model, and cancels a third of the streams after a
few tokens. The first round compiles the graphs that the traffic needs; later rounds must not grow
the memory of router and worker beyond noise. Exits with 1 if a stream fails or a slot stays held.
"""

import argparse
import random
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from rich.console import Console
from rich.table import Table

from harness.service import Service, serving
from harness.waiting import wait_until
from shaperouter import Client

STREAMS = 50
console = Console()


def resident_bytes(pid: int) -> int:
    """Resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


def one_round(client: Client, rng: random.Random, vocab_size: int, max_length: int) -> list[str]:
    """Runs the streams; returns the problems."""
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
        leaves_after = rng.randint(1, limit) if rng.random() < 1 / 3 else None
        threads.append(threading.Thread(target=stream, args=[prompt, limit, leaves_after]))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return problems


def settled(service: Service) -> None:
    """Waits until nothing runs and nothing is being compiled."""
    wait_until(lambda: service.metric("shaperouter_slots", state="active") == 0)
    for state in ("tracing", "compiling"):
        wait_until(lambda state=state: service.metric("shaperouter_graphs", state=state) == 0)


def main() -> int:
    """Runs the rounds, and prints a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=8, help="rounds of 50 streams (default: 8)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the traffic (default: 0)")
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    table = Table("round", "seconds", "problems", "graphs", "router MiB", "worker MiB")
    failed = False
    with serving() as service, Client(service.address) as client:
        (model,) = client.models()
        for index in range(arguments.rounds):
            started = time.monotonic()
            with console.status(f"round {index + 1} of {arguments.rounds}"):
                problems = one_round(client, rng, model.vocab_size, model.max_length)
                seconds = time.monotonic() - started
                settled(service)
            failed = failed or bool(problems)
            console.print(*problems, sep="\n", end="")
            table.add_row(
                str(index + 1),
                f"{seconds:.1f}",
                str(len(problems)),
                f"{service.metric('shaperouter_graphs', state='ready'):.0f}",
                f"{resident_bytes(service.process.pid) / 2**20:.0f}",
                f"{resident_bytes(service.worker_pid()) / 2**20:.0f}",
            )
    console.print(table)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
