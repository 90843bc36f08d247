"""Accuracy of the served grapheme-to-phoneme model against the reference, on all test words.

    make g2p-accuracy

Sends each word of the test split to the service, greedily and with beams, and compares the answers
with the reference's for the same weights. Exits with 1 if a word error rate differs from the
reference's by more than `MAX_DIFFERENCE`, or if beams do not lower it. `--publish` writes the
figures for weights of fewer bits into the model card.
"""

import argparse
import json
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import track

import shaperouter_service
from common.publishing import publish_section
from harness.service import serving
from shaperouter import Client

MODEL = "g2p"
CARD = Path(shaperouter_service.__file__).parent / "builtin" / MODEL / "README.md"
UNDER_WAY = 16
MAX_DIFFERENCE = 0.02

console = Console()


@dataclass(frozen=True, kw_only=True)
class Word:
    """A word of the test split.

    Attributes:
        word: The word.
        pronunciations: Its correct pronunciations.
        answers: The reference's answers, by number of beams.
    """

    word: str
    pronunciations: list[str]
    answers: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One search over all words.

    Attributes:
        beams: 1 is greedy.
        reference: Its word error rate.
        served: The service's word error rate.
        different: Words whose answers differ.
    """

    beams: int
    reference: float
    served: float
    different: int

    @property
    def name(self) -> str:
        """The search as a phrase."""
        return _name(self.beams)


def _name(beams: int) -> str:
    return "greedy" if beams == 1 else f"{beams} beams"


def compare(client: Client, words: list[Word], beams: int) -> Compared:
    """Requests all words."""

    def ask(word: Word) -> str:
        return client.generate(word.word, model=MODEL, num_beams=beams).text

    with ThreadPoolExecutor(UNDER_WAY) as pool:
        answers = pool.map(ask, words)
        served = list(track(answers, description=_name(beams), total=len(words), console=console))
    pairs = list(zip(words, served, strict=True))
    expected = [word.answers[str(beams)] for word in words]
    return Compared(
        beams=beams,
        reference=_wrong(zip(words, expected, strict=True)) / len(words),
        served=_wrong(pairs) / len(words),
        different=sum(word.answers[str(beams)] != answer for word, answer in pairs),
    )


def _wrong(pairs: Iterable[tuple[Word, str]]) -> int:
    return sum(answer not in word.pronunciations for word, answer in pairs)


def publish(found: list[Compared], words: int, dtype: str) -> None:
    """Publishes the results in the model card."""
    rows = [
        f"| {each.name} | {each.served:.2%} | {each.reference:.2%} | {each.different} |"
        for each in found
    ]
    text = "\n".join(
        [
            f"The service's answers to all {words:,} words, of weights in {dtype}, beside the",
            "reference's in float32; by `make g2p-accuracy`.",
            "",
            "| search | word error rate | the reference's | answers that differ |",
            "| --- | ---: | ---: | ---: |",
            *rows,
        ]
    )
    publish_section("## Weights of fewer bits", text, before="## Model", document=CARD)


def main() -> int:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "answers", type=Path, help="file written by service/training/g2p/evaluate.py"
    )
    parser.add_argument("--dtype", default="auto", help="type of the service's weights")
    parser.add_argument(
        "--publish", action="store_true", help="publish the figures in the model card"
    )
    arguments = parser.parse_args()
    with arguments.answers.open(encoding="utf-8") as lines:
        words = [Word(**json.loads(line)) for line in lines]
    found = []
    # Their waiting time does not matter.
    patient = "--max-queue-seconds=3600"
    settings = (f"--model={MODEL}", f"--dtype={arguments.dtype}", patient)
    with serving(*settings) as service, Client(service.address) as client:
        for beams in words[0].answers:
            each = compare(client, words, int(beams))
            console.print(
                f"{each.name}: {each.served:.2%} of {len(words)} words wrong, the reference's "
                f"{each.reference:.2%}; {each.different} answers differ"
            )
            found.append(each)
    if arguments.publish:
        publish(found, len(words), arguments.dtype)
    close = all(abs(each.served - each.reference) <= MAX_DIFFERENCE for each in found)
    greedy, *beamed = found
    falls = all(each.served < greedy.served for each in beamed)
    return int(not (close and falls))


if __name__ == "__main__":
    sys.exit(main())
