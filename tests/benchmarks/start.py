"""Time from the start of a service to its first token.

Uses GPT-2's small size with random weights. In turn, it starts a service with an empty compile
cache, a service with the cache that the first one filled, and, as the lower bound, a process that
only imports TensorFlow and reads the weights. Each is a new process; files are in the page cache.

Run by ``make bench-start``.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

from common.checkpoint import CHECKPOINT, make_checkpoint
from harness.service import LOCAL, Service
from shaperouter import Client

MODEL = "bench"
PROMPT = list(range(1, 17))
FLOOR = """
import sys
import tensorflow
from safetensors.numpy import load_file
load_file(sys.argv[1])
"""
# Events of a start in the log, in order.
MILESTONES = (
    "worker started",
    "listening",
    "loading model",
    "model loaded",
    "weights loaded",
    "graph ready",
    "worker ready",
    "ready",
)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="services of each kind")
    arguments = parser.parse_args()
    make_checkpoint(CHECKPOINT)
    times: dict[str, list[float]] = {"cold": [], "cached": [], "floor": []}
    for turn in range(arguments.rounds):
        with tempfile.TemporaryDirectory() as cache:
            for name in ("cold", "cached"):
                timeline = _start(cache)
                times[name].append(timeline["first token"])
                steps = ", ".join(f"{event} {seconds:.2f}" for event, seconds in timeline.items())
                print(f"{turn} {name}: {steps}", flush=True)
        times["floor"].append(_floor())
    floor = times["floor"]
    print(f"\n{'':<8} {'seconds':>8} {'ratio to the floor':>19}")
    for name, found in times.items():
        ratio = statistics.median(a / b for a, b in zip(found, floor, strict=True))
        print(f"{name:<8} {statistics.median(found):>8.2f} {ratio:>19.2f}")


def _start(cache: str) -> dict[str, float]:
    """Starts a service and asks it for a token; returns the seconds of what happened."""
    started = time.time()
    service = Service(
        "serve",
        f"--listen={LOCAL}",
        f"--metrics-listen={LOCAL}",
        f"--model={MODEL}={CHECKPOINT}",
        f"--compile-cache={cache}",
    )
    try:
        with Client(service.address) as client:
            service.wait_until_ready()
            for _ in client.stream(PROMPT, max_new_tokens=2):
                break
            first = time.time() - started
        timeline = {
            event: datetime.fromisoformat(lines[-1]["timestamp"]).timestamp() - started
            for event in MILESTONES
            if (lines := service.events(event))
        }
        return {**timeline, "first token": first}
    finally:
        service.close()


def _floor() -> float:
    started = time.time()
    weights = Path(CHECKPOINT) / "model.safetensors"
    subprocess.run([sys.executable, "-c", FLOOR, str(weights)], check=True, stderr=subprocess.PIPE)
    return time.time() - started


if __name__ == "__main__":
    main()
