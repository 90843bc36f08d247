"""Transcribes speech with Whisper tiny.en, and compares the transcripts with faster-whisper's.

`make test-whisper` runs it. The service is a real one; recordings are sentences that espeak-ng
says, each by itself, and all of them three times over as one of more than three minutes.
"""

import argparse
import json
import subprocess
import sys
import time
import wave
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.service import serving
from shaperouter import Client
from speech import espeak, weights
from speech.scores import Word, compare_times, word_error_rate

# What may be worse than the reference's, in points of word error rate; how far words' times may be
# apart in seconds, and of how many that must hold.
MOST_WORSE, FAR, LEAST_NEAR = 0.005, 0.2, 0.95
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


@dataclass(frozen=True, kw_only=True)
class Transcripts:
    """Of all recordings, in their order, and how long they took in seconds."""

    words: Sequence[Sequence[Word]]
    seconds: float

    @property
    def texts(self) -> list[str]:
        """What was heard."""
        return ["".join(text for text, *_ in words) for words in self.words]


def recordings(work: Path) -> tuple[list[Recording], Recording]:
    """The sentences, and the long recording."""
    sentences = [
        Recording(path=work / f"sentence-{index:02}.wav", text=text)
        for index, text in enumerate(espeak.SENTENCES, 1)
    ]
    long = Recording(path=work / "long.wav", text=" ".join(REPEATED * espeak.SENTENCES))
    for each in (*sentences, long):
        espeak.say(each.text, each.path)
    if long.seconds < LONG:
        sys.exit(f"{long.path} must be longer than {LONG:g} s, and is {long.seconds:.1f} s long")
    return sentences, long


def ours(client: Client, spoken: Sequence[Recording], beams: int) -> Transcripts:
    """Transcribes with the service."""
    words: list[list[Word]] = []
    started = time.monotonic()
    for each in spoken:
        transcript = client.transcribe(each.path, word_timestamps=True, num_beams=beams, seed=1)
        words.append(
            [
                (word.text, word.start_seconds, word.end_seconds)
                for segment in transcript.segments
                for word in segment.words
            ]
        )
    return Transcripts(words=words, seconds=time.monotonic() - started)


def theirs(python: Path, model: Path, spoken: Sequence[Recording], beams: int) -> Transcripts:
    """Transcribes with the reference."""
    asked = {
        "model": str(model.resolve()),
        "num_beams": beams,
        "files": [str(each.path.resolve()) for each in spoken],
    }
    script = Path(__file__).with_name("reference.py")
    done = subprocess.run(
        [str(python), str(script)],
        input=json.dumps(asked),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    return Transcripts(
        words=[[tuple(word) for word in found["files"][path]] for path in asked["files"]],
        seconds=found["seconds"],
    )


def report(
    name: str, spoken: Sequence[Recording], mine: Transcripts, reference: Transcripts
) -> list[str]:
    """Prints how transcripts compare; returns what is not as it must be."""
    said = [each.text for each in spoken]
    rate, expected = (
        word_error_rate(list(zip(said, each.texts, strict=True))) for each in (mine, reference)
    )
    timing = compare_times(list(zip(mine.words, reference.words, strict=True)))
    near = timing.within(FAR)
    length = sum(each.seconds for each in spoken)
    print(
        f"{name}: word error rate {rate:.2%} (reference {expected:.2%}); of {timing.words} words "
        f"{near:.2%} within {FAR} s, {timing.within(0.02):.2%} within 0.02 s; real-time factor "
        f"{mine.seconds / length:.3f} (reference {reference.seconds / length:.3f})"
    )
    wrong = []
    if rate > expected + MOST_WORSE:
        wrong.append(f"{name}: the word error rate is {rate:.2%}, the reference's {expected:.2%}")
    if near < LEAST_NEAR:
        wrong.append(f"{name}: only {near:.2%} of words are within {FAR} s")
    return wrong


def main() -> None:
    """Compares, and ends with 1 if something is not as it must be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True, help="Directory for what is made.")
    parser.add_argument("--reference", type=Path, required=True, help="The reference's Python.")
    arguments = parser.parse_args()
    work: Path = arguments.work
    work.mkdir(parents=True, exist_ok=True)
    espeak.have_espeak()
    original, converted = weights.fetch(work)
    sentences, long = recordings(work)
    wrong: list[str] = []
    cache = {"SHAPEROUTER_COMPILE_CACHE": str((work / "cache").resolve())}
    with (
        serving(f"--model=tiny.en={converted.resolve()}", env=cache) as service,
        Client(service.address) as client,
    ):
        # Compiles what words and beams need, so that no time below is that of a compilation.
        for beams in BEAMS:
            ours(client, sentences[:1], beams)
        for beams in BEAMS:
            for name, spoken in ((f"{len(sentences)} sentences", sentences), ("long", [long])):
                wrong += report(
                    f"{name}, {'greedy' if beams == 1 else f'{beams} beams'}",
                    spoken,
                    ours(client, spoken, beams),
                    theirs(arguments.reference, original, spoken, beams),
                )
    sys.exit("\n".join(wrong) if wrong else 0)


if __name__ == "__main__":
    main()
