"""The served grapheme-to-phoneme model beside the reference implementation, on all test words.

    make g2p-accuracy

Asks the service for each word of the test split, greedily and with beams, and compares with what
the reference made of the same weights. Exits with 1 if a word error rate is further from the
reference's than `MOST_APART`, or beams do not lower it.
"""

import argparse
import json
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from rich.console import Console
from rich.progress import track
from rich.table import Table

from harness.service import serving
from shaperouter import Client

MODEL = "g2p"
UNDER_WAY = 16
MOST_APART = 0.02

console = Console()


@dataclass(frozen=True, kw_only=True)
class Word:
    """A word of the test split.

    Attributes:
        word: It.
        pronunciations: Those that are right.
        answers: The reference's, by number of beams.
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
        served: Ours.
        different: Words of which the answers differ.
    """

    beams: int
    reference: float
    served: float
    different: int


def compare(client: Client, words: list[Word], beams: int) -> Compared:
    """Asks for all words."""

    def ask(word: Word) -> str:
        return client.generate(word.word, model=MODEL, num_beams=beams).text

    name = "greedy" if beams == 1 else f"{beams} beams"
    with ThreadPoolExecutor(UNDER_WAY) as pool:
        answers = pool.map(ask, words)
        served = list(track(answers, description=name, total=len(words), console=console))
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


def main() -> int:
    """Runs it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("answers", type=Path, help="what service/training/g2p/evaluate.py wrote")
    with parser.parse_args().answers.open(encoding="utf-8") as lines:
        words = [Word(**json.loads(line)) for line in lines]
    with serving(f"--model={MODEL}") as service, Client(service.address) as client:
        found = [compare(client, words, int(beams)) for beams in words[0].answers]
    table = Table(
        "search", "reference", "served", "answers that differ", title=f"{len(words)} test words"
    )
    for each in found:
        table.add_row(
            "greedy" if each.beams == 1 else f"{each.beams} beams",
            f"{each.reference:.2%} wrong",
            f"{each.served:.2%} wrong",
            f"{each.different} of {len(words)}",
        )
    console.print(table)
    close = all(abs(each.served - each.reference) <= MOST_APART for each in found)
    greedy, *beamed = found
    falls = all(each.served < greedy.served for each in beamed)
    return int(not (close and falls))


if __name__ == "__main__":
    sys.exit(main())
