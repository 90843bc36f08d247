"""Time from the start of a service to its first token, against Transformers.

Uses GPT-2's small size with random weights. In turn, it starts a service with an empty compile
cache, a service with the cache that the first one filled, a process of Transformers that compiles
`generate` with XLA, and, as the lower bound, a process that only imports TensorFlow and reads the
weights. Each is a new process; files are in the page cache. All are asked for two tokens after the
same prompt. Shaperouter streams them; Transformers returns both at once.

Run by ``make bench-start``.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from generation.contestants import TRANSFORMERS_XLA

from common.checkpoint import CHECKPOINT, make_checkpoint
from common.paths import PYTHON_PATH, THREADS, environment_python
from harness.service import LOCAL, Service
from shaperouter import Client

MODEL = "bench"
PROMPT, NEW_TOKENS = list(range(1, 17)), 2
FLOOR = """
import sys
import tensorflow
from safetensors.numpy import load_file
load_file(sys.argv[1])
"""
# As `generation` measures it, with a single call.
TRANSFORMERS = f"""
import os
from generation import peer_transformers_tf
with peer_transformers_tf.load() as contestant:
    contestant.generate([{PROMPT}], {NEW_TOKENS}, {{}})
# Ends without waiting for the interpreter.
os._exit(0)
"""
# Maximum ratios: cold to Transformers, and cached to the floor.
TARGETS = {("cold", "transformers"): 0.4, ("cached", "floor"): 1.3}
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
    times: dict[str, list[float]] = {"cold": [], "cached": [], "transformers": [], "floor": []}
    for turn in range(arguments.rounds):
        with tempfile.TemporaryDirectory() as cache:
            for name in ("cold", "cached"):
                timeline = _start(cache)
                times[name].append(timeline["first token"])
                steps = ", ".join(f"{event} {seconds:.2f}" for event, seconds in timeline.items())
                print(f"{turn} {name}: {steps}", flush=True)
        times["transformers"].append(_transformers())
        times["floor"].append(_floor())
        print(
            f"{turn} transformers {times['transformers'][-1]:.2f}, floor {times['floor'][-1]:.2f}",
            flush=True,
        )
    print(f"\n| | seconds | ratio to {TRANSFORMERS_XLA.label} | ratio to the floor |")
    print("|---|---|---|---|")
    for name, found in times.items():
        ratios = [_ratio(times, name, other) for other in ("transformers", "floor")]
        print(f"| {name} | {statistics.median(found):.2f} | {ratios[0]:.2f} | {ratios[1]:.2f} |")
    print("\n| target | at most | measured | verdict |")
    print("|---|---|---|---|")
    for (name, other), limit in TARGETS.items():
        ratio = _ratio(times, name, other)
        verdict = "met" if ratio <= limit else "missed"
        print(f"| {name} ÷ {other} | {limit} | {ratio:.3f} | {verdict} |")


def _ratio(times: Mapping[str, Sequence[float]], name: str, other: str) -> float:
    """The median of the ratios of the rounds."""
    pairs = zip(times[name], times[other], strict=True)
    return statistics.median(seconds / others for seconds, others in pairs)


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
            for _ in client.stream(PROMPT, max_new_tokens=NEW_TOKENS):
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


def _transformers() -> float:
    python = environment_python(TRANSFORMERS_XLA.environment)
    return _seconds_of(
        [
            *(str(python), "-c", TRANSFORMERS, *TRANSFORMERS_XLA.options),
            *(f"--model={CHECKPOINT}", f"--threads={THREADS}"),
        ],
        os.environ | {"PYTHONPATH": PYTHON_PATH},
    )


def _floor() -> float:
    weights = Path(CHECKPOINT) / "model.safetensors"
    return _seconds_of([sys.executable, "-c", FLOOR, str(weights)], os.environ)


def _seconds_of(command: Sequence[str], environment: Mapping[str, str]) -> float:
    """How long a process takes."""
    started = time.monotonic()
    subprocess.run(command, env=environment, check=True, stderr=subprocess.PIPE)
    return time.monotonic() - started


if __name__ == "__main__":
    main()
