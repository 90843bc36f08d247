"""Measures Whisper tiny.en on 30 s of speech against other systems, in turn.

`make bench-whisper` runs it. All contestants use the same float32 weights and all cores, and
the service is called over gRPC. No contestant times words or falls back to higher temperatures.
"""

import argparse
import contextlib
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from speech import espeak, weights
from speech.peers import Peer, peer
from speech.samples import resample

from harness.service import Service, serving
from harness.waiting import wait_until
from shaperouter import Client

SECONDS = 30
BEAMS = (1, 5)
WARM_ROUNDS = 3

# Seconds and text of a recording, with so many beams.
Measure = Callable[[Path, int], tuple[float, str]]


def speech(work: Path, number: int) -> Path:
    """A window of speech in one channel at 16 kHz.

    Each number has another sample, since the service encodes equal windows once.
    """
    source, target = work / "long.wav", work / "window.wav"
    espeak.say(" ".join(3 * espeak.SENTENCES), source)
    resample(source, target, SECONDS, first=number)
    return target


def of_peer(one: Peer) -> Measure:
    """The time of another implementation with this many beams, and its text."""

    def measure(path: Path, beams: int) -> tuple[float, str]:
        found = one.transcribe(path, num_beams=beams, words=False, fallback=False)
        return found.seconds, found.text

    return measure


def of_service(client: Client, spent: Counter[str]) -> Measure:
    """The time of the service; adds its parts to `spent`."""

    def measure(path: Path, beams: int) -> tuple[float, str]:
        started = time.monotonic()
        found = client.transcribe(path, num_beams=beams, temperatures=[0.0])
        seconds = time.monotonic() - started
        for use in found.graphs:
            spent[use.served.shape] += use.device_seconds
        spent["the rest"] += seconds - found.device_seconds
        return seconds, found.text

    return measure


def settled(service: Service) -> None:
    """Waits until all compilations have ended."""
    states = ("queued", "tracing", "compiling")
    wait_until(
        lambda: not any(service.metric("shaperouter_graphs", state=state) for state in states),
        timeout=300,
    )


def main() -> None:
    """Measures and prints medians and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--work", type=Path, required=True, help="Directory for intermediate files."
    )
    parser.add_argument(
        "--faster-whisper", type=Path, required=True, help="Python interpreter of its environment."
    )
    parser.add_argument(
        "--transformers",
        type=Path,
        help="Python interpreter of its environment; skipped if not given.",
    )
    parser.add_argument("--rounds", type=int, default=7, help="Number of rounds. Default: 7.")
    arguments = parser.parse_args()
    work: Path = arguments.work
    work.mkdir(parents=True, exist_ok=True)
    espeak.have_espeak()
    original, converted = weights.fetch(work)
    cache = {"SHAPEROUTER_COMPILE_CACHE": str((work / "cache").resolve())}
    with (
        serving(f"--model=tiny.en={converted.resolve()}", env=cache) as service,
        Client(service.address) as client,
        peer("peer_faster_whisper", arguments.faster_whisper, original) as faster_whisper,
        contextlib.ExitStack() as stack,
    ):
        spent: Counter[str] = Counter()
        contestants = {
            "Shaperouter over gRPC": of_service(client, spent),
            "faster-whisper": of_peer(faster_whisper),
        }
        if arguments.transformers:
            transformers = peer("peer_transformers", arguments.transformers, converted)
            contestants["Transformers, PyTorch"] = of_peer(stack.enter_context(transformers))
        print(f"| {SECONDS} s of speech | {' | '.join(contestants)} |")
        print("|---" * (1 + len(contestants)) + "|")
        for beams in BEAMS:
            times: dict[str, list[float]] = {name: [] for name in contestants}
            # The first rounds do not count: graphs are compiled, and caches filled.
            for round_ in range(-WARM_ROUNDS, arguments.rounds):
                path = speech(work, 10 * beams + round_)
                if round_ == 0:
                    settled(service)
                    spent.clear()
                for name, measure in contestants.items():
                    seconds, text = measure(path, beams)
                    if round_ >= 0:
                        times[name].append(seconds)
                    elif round_ == -1:
                        print(f"{name}: {text.strip()[-70:]}", file=sys.stderr)
            ours, *_ = medians = [statistics.median(found) for found in times.values()]
            cells = [
                f"{median:.3f} s ({min(found):.3f}–{max(found):.3f}), {median / ours:.2f}"
                for median, found in zip(medians, times.values(), strict=True)
            ]
            search = "greedy" if beams == 1 else f"{beams} beams"
            print(f"| {search} | {' | '.join(cells)} |")
            parts = (f"{part} {spent[part] / arguments.rounds:.3f} s" for part in spent)
            print(f"{search}, parts of Shaperouter's mean: {', '.join(parts)}", file=sys.stderr)


if __name__ == "__main__":
    main()
