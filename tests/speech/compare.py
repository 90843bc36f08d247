"""Transcribes speech with Whisper tiny.en, and compares the transcripts with faster-whisper's.

`make test-whisper` runs it. The service is a real one; recordings are sentences that espeak-ng
says in several voices, each by itself, and all of them three times over as one of more than three
minutes.
"""

import argparse
import sys
import time
import wave
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.service import serving
from shaperouter import Client
from speech import espeak, weights
from speech.peers import Transcript, peer
from speech.samples import resample
from speech.scores import compare_times, word_error_rate

# Limits of the comparison: points by which the word error rate may be worse than the reference's;
# seconds between times of words, and the share of words within them.
MOST_WORSE, FAR, LEAST_NEAR = 0.005, 0.2, 0.95
# Of timestamps, in seconds.
STEP = 0.02
REPEATED = 3
BEAMS = (1, 5)
# Least length of the long recording, in seconds.
LONG = 180.0


@dataclass(frozen=True, kw_only=True)
class Recording:
    """Speech of a known text."""

    path: Path
    text: str

    @property
    def seconds(self) -> float:
        """How long it is."""
        with wave.open(str(self.path)) as file:
            return file.getnframes() / file.getframerate()


def recordings(work: Path) -> tuple[list[Recording], Recording]:
    """The sentences, and the long recording."""

    def spoken(name: str, text: str, voice: str = espeak.VOICES[0]) -> Recording:
        said, path = work / f"{name}.wav", work / f"{name}-16k.wav"
        espeak.say(text, said, voice)
        resample(said, path)
        return Recording(path=path, text=text)

    sentences = [
        spoken(f"sentence-{index:02}-{voice}", text, voice)
        for voice in espeak.VOICES
        for index, text in enumerate(espeak.SENTENCES, 1)
    ]
    long = spoken("long", " ".join(REPEATED * espeak.SENTENCES))
    if long.seconds < LONG:
        sys.exit(f"{long.path} must be longer than {LONG:g} s, and is {long.seconds:.1f} s long")
    return sentences, long


def ours(client: Client, spoken: Recording, beams: int) -> Transcript:
    """Transcribes with the service."""
    started = time.monotonic()
    found = client.transcribe(spoken.path, word_timestamps=True, num_beams=beams, seed=1)
    words = [
        (word.text, word.start_seconds, word.end_seconds)
        for segment in found.segments
        for word in segment.words
    ]
    segments = [(each.text, each.start_seconds, each.end_seconds) for each in found.segments]
    return Transcript(segments=segments, words=words, seconds=time.monotonic() - started)


def report(
    name: str,
    spoken: Sequence[Recording],
    mine: Sequence[Transcript],
    reference: Sequence[Transcript],
) -> list[str]:
    """Prints a comparison of transcripts; returns the limits that are exceeded."""
    said = [each.text for each in spoken]
    rate, expected = (
        word_error_rate([(text, each.text) for text, each in zip(said, found, strict=True)])
        for found in (mine, reference)
    )
    both = list(zip(mine, reference, strict=True))
    words = compare_times([(one.words, other.words) for one, other in both])
    segments = compare_times([(one.segments, other.segments) for one, other in both])
    near = words.within(FAR)
    equal = sum(one.text.strip() == other.text.strip() for one, other in both)
    length = sum(each.seconds for each in spoken)
    factors = [sum(each.seconds for each in found) / length for found in (mine, reference)]
    print(
        f"{name} ({length:.0f} s): word error rate {rate:.2%} (reference {expected:.2%}), "
        f"{equal} of {len(spoken)} texts equal; of {words.count} words {near:.2%} within {FAR} s, "
        f"{words.within(STEP):.2%} within {STEP} s; of {segments.count} segments "
        f"{segments.within(STEP):.2%} within {STEP} s; real-time factor {factors[0]:.3f} "
        f"(reference {factors[1]:.3f})"
    )
    wrong = []
    if rate > expected + MOST_WORSE:
        wrong.append(f"{name}: the word error rate is {rate:.2%}, the reference's {expected:.2%}")
    if near < LEAST_NEAR:
        wrong.append(f"{name}: only {near:.2%} of words are within {FAR} s")
    return wrong


def main() -> None:
    """Compares, and exits with 1 if a limit is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True, help="Directory for what is made.")
    parser.add_argument("--reference", type=Path, required=True, help="The reference's Python.")
    parser.add_argument(
        "--beams", type=int, action="append", help="Widths of search. Default: 1 and 5."
    )
    parser.add_argument("--dtype", default="auto", help="Type that the service holds weights in.")
    arguments = parser.parse_args()
    work: Path = arguments.work
    work.mkdir(parents=True, exist_ok=True)
    espeak.have_espeak()
    original, converted = weights.fetch(work)
    sentences, long = recordings(work)
    wrong: list[str] = []
    cache = {"SHAPEROUTER_COMPILE_CACHE": str((work / "cache").resolve())}
    settings = (f"--model=tiny.en={converted.resolve()}", f"--dtype={arguments.dtype}")
    with (
        serving(*settings, env=cache) as service,
        Client(service.address) as client,
        peer("peer_faster_whisper", arguments.reference, original) as reference,
    ):
        for beams in arguments.beams or BEAMS:
            # Compiles what words and beams need, so that no time below is that of a compilation.
            ours(client, sentences[0], beams)
            for name, spoken in ((f"{len(sentences)} sentences", sentences), ("long", [long])):
                mine, other = [], []
                for each in spoken:
                    mine.append(ours(client, each, beams))
                    other.append(reference.transcribe(each.path, num_beams=beams, words=True))
                search = "greedy" if beams == 1 else f"{beams} beams"
                wrong += report(f"{name}, {search}", spoken, mine, other)
    sys.exit("\n".join(wrong) if wrong else 0)


if __name__ == "__main__":
    main()
