"""Measures Whisper tiny.en on 30 s of speech against others, in turn in one run.

`make bench-whisper` runs it. All have the same weights in float32 and all cores; the service is
asked over gRPC. Nobody tells words, and nobody tries higher temperatures.
"""

import argparse
import statistics
import sys
import time
import wave
from collections.abc import Callable
from pathlib import Path

import numpy as np
import soxr
from speech import espeak, weights
from speech.peers import Peer, peer

from harness.service import serving
from shaperouter import Client

SECONDS, RATE = 30, 16_000
BEAMS = (1, 5)


def speech(work: Path) -> Path:
    """Just a window of it, as everybody takes it: one channel at 16 kHz."""
    source, target = work / "long.wav", work / "window.wav"
    espeak.say(" ".join(3 * espeak.SENTENCES), source)
    with wave.open(str(source)) as file:
        rate = file.getframerate()
        content = file.readframes(SECONDS * rate)
    samples = np.frombuffer(content, "<i2").astype(np.float32) / 2**15
    resampled = soxr.resample(samples, rate, RATE)[: SECONDS * RATE]
    with wave.open(str(target), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(np.round(resampled * (2**15 - 1)).astype("<i2").tobytes())
    return target


def of_peer(one: Peer, path: Path) -> Callable[[int], tuple[float, str]]:
    """How long another implementation takes with so many beams, and what it hears."""

    def measure(beams: int) -> tuple[float, str]:
        found = one.transcribe(path, num_beams=beams, words=False, fallback=False)
        return found.seconds, found.text

    return measure


def of_service(client: Client, path: Path) -> Callable[[int], tuple[float, str]]:
    """How long the service takes."""

    def measure(beams: int) -> tuple[float, str]:
        started = time.monotonic()
        found = client.transcribe(path, num_beams=beams, temperatures=[0.0])
        return time.monotonic() - started, found.text

    return measure


def main() -> None:
    """Measures, and prints medians and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True, help="Directory for what is made.")
    parser.add_argument("--faster-whisper", type=Path, required=True, help="Its Python.")
    parser.add_argument("--transformers", type=Path, required=True, help="Its Python.")
    parser.add_argument("--rounds", type=int, default=7, help="In turn. Default: 7.")
    arguments = parser.parse_args()
    work: Path = arguments.work
    work.mkdir(parents=True, exist_ok=True)
    espeak.have_espeak()
    original, converted = weights.fetch(work)
    path = speech(work)
    cache = {"SHAPEROUTER_COMPILE_CACHE": str((work / "cache").resolve())}
    with (
        serving(f"--model=tiny.en={converted.resolve()}", env=cache) as service,
        Client(service.address) as client,
        peer("peer_faster_whisper", arguments.faster_whisper, original) as faster_whisper,
        peer("peer_transformers", arguments.transformers, converted) as transformers,
    ):
        contestants = {
            "Shaperouter over gRPC": of_service(client, path),
            "faster-whisper": of_peer(faster_whisper, path),
            "Transformers, PyTorch": of_peer(transformers, path),
        }
        print(f"| {SECONDS} s of speech | {' | '.join(contestants)} |")
        print("|---" * (1 + len(contestants)) + "|")
        for beams in BEAMS:
            times: dict[str, list[float]] = {name: [] for name in contestants}
            # The first round is of nobody: graphs are compiled, and caches filled.
            for round_ in range(1 + arguments.rounds):
                for name, measure in contestants.items():
                    seconds, text = measure(beams)
                    if round_:
                        times[name].append(seconds)
                    else:
                        print(f"{name} hears: {text.strip()[:70]}…", file=sys.stderr)
            ours, *_ = medians = [statistics.median(found) for found in times.values()]
            cells = [
                f"{median:.3f} s ({min(found):.3f}–{max(found):.3f}), {median / ours:.2f}"
                for median, found in zip(medians, times.values(), strict=True)
            ]
            print(f"| {'greedy' if beams == 1 else f'{beams} beams'} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
