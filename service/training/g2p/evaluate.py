"""Measures a grapheme-to-phoneme model with the reference implementation, and writes its card.

Words are those of the test split, which training has not seen. A word is right if any of its
pronunciations in the dictionary comes out, and the phonemes that are wrong in it are the edits to
the pronunciation that is closest.
"""

from __future__ import annotations

import argparse
import json
import platform
from dataclasses import asdict, dataclass
from pathlib import Path

import card
import corpus
import torch
import transformers
from rapidfuzz.distance import Levenshtein
from tqdm import tqdm
from transformers import AutoTokenizer, PreTrainedTokenizerBase, T5ForConditionalGeneration

BEAMS = (1, 4, 8)
BATCH_WORDS = 128

# By number of beams and word: its likeliest pronunciations, best first.
Found = dict[int, list[list[list[str]]]]


@dataclass(frozen=True, kw_only=True)
class Reader:
    """A model and its tokenizer."""

    model: T5ForConditionalGeneration
    tokenizer: PreTrainedTokenizerBase

    @torch.no_grad()
    def pronounce(
        self, words: list[str], *, beams: int, sequences: int = 1
    ) -> list[list[list[str]]]:
        """For each word the phonemes of its likeliest pronunciations, best first."""
        answers: dict[int, list[list[str]]] = {}
        # Words of like lengths together; the order is not part of the result.
        order = sorted(range(len(words)), key=lambda number: len(words[number]))
        for start in tqdm(range(0, len(order), BATCH_WORDS), desc=f"{beams} beams", unit="batch"):
            batch = order[start : start + BATCH_WORDS]
            inputs = self.tokenizer(
                [words[number] for number in batch], padding=True, return_tensors="pt"
            )
            ids = self.model.generate(
                input_ids=inputs["input_ids"],
                attention_mask=inputs["attention_mask"],
                num_beams=beams,
                num_return_sequences=sequences,
                do_sample=False,
            )
            texts = self.tokenizer.batch_decode(ids, skip_special_tokens=True)
            for row, number in enumerate(batch):
                of_word = texts[row * sequences : (row + 1) * sequences]
                answers[number] = [text.split() for text in of_word]
        return [answers[number] for number in range(len(words))]


def is_right(entry: corpus.Entry, phonemes: list[str]) -> bool:
    """Whether this is a pronunciation of the word."""
    return phonemes in entry.pronunciations


def word_error_rate(entries: list[corpus.Entry], answers: list[list[str]]) -> float:
    """The share of words that are wrong."""
    wrong = sum(not is_right(*pair) for pair in zip(entries, answers, strict=True))
    return wrong / len(entries)


def phoneme_error_rate(entries: list[corpus.Entry], answers: list[list[str]]) -> float:
    """Edits to each word's closest pronunciation, divided by the phonemes of these."""
    edits, phonemes = 0, 0
    for entry, answer in zip(entries, answers, strict=True):
        closest = min(
            entry.pronunciations, key=lambda reference: Levenshtein.distance(answer, reference)
        )
        edits += Levenshtein.distance(answer, closest)
        phonemes += len(closest)
    return edits / phonemes


def with_unknown(word: str) -> str:
    """Puts a character that the tokenizer does not know into the middle of a word."""
    middle = len(word) // 2
    return f"{word[:middle]}?{word[middle:]}"


def pronounce_all(reader: Reader, entries: list[corpus.Entry]) -> Found:
    """Searches greedily, and with each number of beams."""
    words = [entry.word for entry in entries]
    return {beams: reader.pronounce(words, beams=beams, sequences=min(beams, 3)) for beams in BEAMS}


def write_answers(found: Found, entries: list[corpus.Entry], file: Path) -> None:
    """Writes a line for each word: its pronunciations, and the likeliest result of each search."""
    with open(file, "w") as lines:
        for number, entry in enumerate(entries):
            answers = {beams: " ".join(of_words[number][0]) for beams, of_words in found.items()}
            right = [" ".join(phonemes) for phonemes in entry.pronunciations]
            line = {"word": entry.word, "pronunciations": right, "answers": answers}
            lines.write(json.dumps(line) + "\n")


def measure(reader: Reader, found: Found, entries: list[corpus.Entry]) -> dict[str, object]:
    """The figures of the card that come from the test split."""
    words = [entry.word for entry in entries]
    best = {beams: [of_word[0] for of_word in answers] for beams, answers in found.items()}
    greedy, beamed = best[1], best[4]
    of_three = [
        any(is_right(entry, answer) for answer in answers)
        for entry, answers in zip(entries, found[4], strict=True)
    ]
    disturbed = reader.pronounce([with_unknown(word) for word in words], beams=1)
    mended = [
        (entry, before, after)
        for entry, before, after in zip(entries, greedy, beamed, strict=True)
        if is_right(entry, after) and not is_right(entry, before)
    ]
    return {
        "rates": [
            card.Rates(
                beams=beams,
                phoneme_errors=phoneme_error_rate(entries, answers),
                word_errors=word_error_rate(entries, answers),
            )
            for beams, answers in best.items()
        ],
        "word_errors_of_three": 1 - sum(of_three) / len(entries),
        "word_errors_with_unknown": word_error_rate(entries, [of_word[0] for of_word in disturbed]),
        "mended": len(mended),
        "spoilt": sum(
            is_right(entry, before) and not is_right(entry, after)
            for entry, before, after in zip(entries, greedy, beamed, strict=True)
        ),
        "examples": [
            card.Example(word=entry.word, greedy=" ".join(before), beams=" ".join(after))
            for entry, before, after in mended[:: max(1, len(mended) // card.EXAMPLES)]
        ][: card.EXAMPLES],
    }


def main() -> None:
    """Command line: `python evaluate.py --corpus DIR --model DIR --answers FILE [--work DIR]`."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--corpus", type=Path, required=True, help="folder corpus.py wrote")
    parser.add_argument("--model", type=Path, required=True, help="folder train.py wrote")
    parser.add_argument("--answers", type=Path, required=True, help="file for all answers")
    parser.add_argument("--work", type=Path, help="folder train.py worked in: writes a new card")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)

    reader = Reader(
        model=T5ForConditionalGeneration.from_pretrained(args.model, dtype=torch.float32).eval(),
        tokenizer=AutoTokenizer.from_pretrained(args.model),
    )
    splits = {split: corpus.load(args.corpus, split) for split in corpus.SPLITS}
    found = pronounce_all(reader, splits["test"])
    write_answers(found, splits["test"], args.answers)
    if args.work is not None:
        write_card(reader, found, splits, args)


def write_card(
    reader: Reader,
    found: Found,
    splits: dict[str, list[corpus.Entry]],
    args: argparse.Namespace,
) -> None:
    """Measures the figures of the card, and writes the card beside the model."""
    known = {entry.word for entries in splits.values() for entry in entries}
    new_words = [word for word in card.NEW_WORDS if word not in known]
    figures = card.Figures(
        **json.loads((args.work / "run.json").read_text()),
        versions={
            "torch": torch.__version__.split("+")[0],
            "transformers": transformers.__version__,
            "python": platform.python_version(),
        },
        parameters=reader.model.num_parameters(),
        new_words={
            word: [" ".join(answer) for answer in answers]
            for word, answers in zip(
                new_words, reader.pronounce(new_words, beams=4, sequences=3), strict=True
            )
        },
        **measure(reader, found, splits["test"]),
    )
    manifest = json.loads((args.corpus / "manifest.json").read_text())
    (args.work / "figures.json").write_text(json.dumps(asdict(figures), indent=2) + "\n")
    text = card.render(figures, manifest)
    (args.model / "README.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
