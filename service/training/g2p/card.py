"""The model's card: its figures are measured by `evaluate.py` or read from run and corpus."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

NEW_WORDS = ("tensorflow", "shaperouter", "kubernetes", "tokenizer", "pytorch", "grapheme")
"""Shown on the card if the dictionary does not have them."""
EXAMPLES = 8  # words of the test split that beam search gets right and greedy search does not


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Errors on the test split, as shares of 1."""

    beams: int  # 1 is greedy
    phoneme_errors: float
    word_errors: float


@dataclass(frozen=True, kw_only=True)
class Example:
    """A word that 4 beams get right and greedy search does not."""

    word: str
    greedy: str
    beams: str


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Facts about a run, and measurements of its model."""

    recipe: dict[str, Any]  # train.Recipe
    steps: int
    processor_seconds: float  # of training, summed over threads
    machine: str
    versions: dict[str, str]
    parameters: int
    rates: list[Rates]
    word_errors_of_three: float  # none of the three best of 4 beams is right
    word_errors_with_unknown: float  # greedy, each word with an unknown character in its middle
    mended: int  # words wrong greedily and right with 4 beams
    spoilt: int  # the reverse
    examples: list[Example]
    new_words: dict[str, list[str]]


def _percent(share: float) -> str:
    return f"{share:.2%}".replace("%", " %")


def render(figures: Figures, manifest: dict[str, Any]) -> str:
    """The card as Markdown, with the front matter model hubs read."""
    recipe = figures.recipe
    rates = "\n".join(
        f"| {'greedy' if r.beams == 1 else f'{r.beams} beams'} "
        f"| {_percent(r.phoneme_errors)} | {_percent(r.word_errors)} |"
        for r in figures.rates
    )
    examples = "\n".join(
        f"| {example.word} | `{example.greedy}` | `{example.beams}` |"
        for example in figures.examples
    )
    new_words = "\n".join(
        f"| {word} | " + " | ".join(f"`{answer}`" for answer in answers) + " |"
        for word, answers in figures.new_words.items()
    )
    splits = "\n".join(
        f"| {split} | {words:,} | {manifest['pronunciations'][split]:,} |"
        for split, words in manifest["words"].items()
    )
    licence = "\n".join(f"> {line}".rstrip() for line in manifest["licence"].strip().splitlines())
    versions = ", ".join(f"{name} {version}" for name, version in figures.versions.items())
    return f"""\
---
license: apache-2.0
language: en
library_name: transformers
tags: [t5, grapheme-to-phoneme]
---

# Shaperouter grapheme-to-phoneme model

A T5 of {figures.parameters / 1e6:.1f} million parameters that reads an English word and writes
how it is pronounced, trained from scratch on the CMU Pronouncing Dictionary. It ships inside the
Shaperouter service as an encoder-decoder model with a task of its own, on which beam search can be
seen to matter.

This card is written by the training scripts; every figure below, but for the published ones, is of
the weights beside it.

## Input and output

One word in, in any case; its phonemes out, separated by spaces: `TensorFlow` gives
`{figures.new_words["tensorflow"][0]}`.

- Phonemes are the dictionary's 39 of [ARPAbet](https://en.wikipedia.org/wiki/ARPABET),
  **without stress**.
- Each character is a token. The model knows the letters `a` to `z`, `'`, `-` and `.`. Capitals and
  accents do not matter.
- Any other character, digits and spaces among them, becomes `<unk>`, which the model was trained to
  pass over: with a `?` in the middle of each test word, greedy search gets
  {_percent(figures.word_errors_with_unknown)} of them wrong.
- Write out numbers, and send each word of a sentence on its own.

## Quality

On the {manifest["words"]["test"]:,} words of the test split, which neither training nor any choice
of settings has seen, by Transformers' `generate` in float32, with its defaults otherwise:

| search | phoneme error rate | word error rate |
| --- | ---: | ---: |
{rates}

A word is wrong unless one of its pronunciations in the dictionary comes out exactly. Phoneme errors
are the edits to the closest of them, by its length.

4 beams get {figures.mended} words right that greedy search gets wrong, and {figures.spoilt} wrong
that it gets right. For {_percent(figures.word_errors_of_three)} of the words, none of the three
best of 4 beams is right. Some words that beams mended:

| word | greedy | 4 beams |
| --- | --- | --- |
{examples}

Words that the dictionary does not have, the three best of 4 beams:

| word | best | second | third |
| --- | --- | --- | --- |
{new_words}

### Published figures

These models write no stress either. Versions of the dictionary, splits and what was left out
differ, so they tell what is usual, not which model is better.

| model | words | phoneme error rate | word error rate |
| --- | --- | ---: | ---: |
| Transformer, 3 layers of width 256 [1] | CMUdict, latest | | 30.2 % |
| Phonetisaurus, n-grams [1] | CMUdict, latest | | 33.89 % |
| Transformer, 3 layers of width 256 [1] | CMUdict, PRONASYL 2007 | | 20.6 % |
| the same, trained again by a user [2] | CMUdict, PRONASYL 2007 | 5.62 % | 25.53 % |
| Phonetisaurus, n-grams [1] | CMUdict, PRONASYL 2007 | | 24.4 % |
| bidirectional LSTM [3] | CMUdict | 5.45 % | 23.55 % |
| Transformer, distilled from an ensemble with unlabelled words [4] | CMUdict | 4.6 % | 19.88 % |

The first two are of the dictionary that this model was trained on, in an earlier version.

1. CMUSphinx, [g2p-seq2seq](https://github.com/cmusphinx/g2p-seq2seq), README
2. [g2p-seq2seq, issue 173](https://github.com/cmusphinx/g2p-seq2seq/issues/173)
3. Yao and Zweig, [Sequence-to-Sequence Neural Net Models for Grapheme-to-Phoneme
   Conversion](https://arxiv.org/abs/1506.00196), 2015
4. Sun et al., [Token-Level Ensemble Distillation for Grapheme-to-Phoneme
   Conversion](https://arxiv.org/abs/1904.03446), 2019

## Model

| | |
| --- | --- |
| architecture | `T5ForConditionalGeneration` in the shape of v1.0: ReLU, tied and scaled head |
| parameters | {figures.parameters:,} |
| layers | {recipe["num_layers"]} of the encoder, {recipe["num_decoder_layers"]} of the decoder |
| heads | {recipe["num_heads"]} of {recipe["d_kv"]} |
| width, inside feed-forward | {recipe["d_model"]}, {recipe["d_ff"]} |
| position buckets | {recipe["relative_attention_num_buckets"]} up to a distance of \
{recipe["relative_attention_max_distance"]} |
| vocabulary | 71 tokens: `<pad>` (0, which also begins the output), `</s>` (1), `<unk>` (2), \
characters, phonemes |
| weights | float32, safetensors |
| licence | Apache-2.0 |

## Limits

- The dictionary is of North American English; many of its words are names. Words of other languages
  are read as an American newsreader might.
- The sense of a word is not known: `read` and `lead` have two pronunciations, and context cannot
  decide between them.
- Acronyms are spelled out or read as words by guess.
- Trained on words of up to 28 characters; longer input is read with growing errors.

## Training

```sh
export PYTHONPATH=service/training
python service/training/g2p/corpus.py --wheels WHEELS --output CORPUS
python service/training/g2p/train.py --corpus CORPUS --work WORK --output MODEL
python service/training/g2p/evaluate.py --corpus CORPUS --work WORK --model MODEL
```

| | |
| --- | --- |
| steps | {figures.steps:,} of {recipe["batch_words"]} words: {recipe["epochs"]} epochs |
| optimizers | Muon ({recipe["matrix_lr"]}) for matrices, AdamW ({recipe["other_lr"]}) for \
the rest |
| schedule | {recipe["warmup_steps"]} warm-up steps, constant, then linear to zero over the last \
{recipe["decay_share"]:.0%} of the steps |
| against overfitting | dropout {recipe["dropout_rate"]} (the same features at all positions of a \
word), label smoothing {recipe["label_smoothing"]} |
| unknown characters | {recipe["unknown_share"]:.0%} of the words get an `<unk>` somewhere |
| precision | float32 |
| seed | {recipe["seed"]} |
| trained on | {figures.machine} |
| processor time | {figures.processor_seconds / 60:.0f} minutes of the CPU, over all threads |
| measured with | {versions} |

## Words

The dictionary as in `{manifest["package"]}`, of which nothing but the data was used. Nothing is
left out; pronunciations that differ in stress alone are one. A hash of the word decides its split.
SHA-256 of the result: `{manifest["sha256"]}`.

| split | words | pronunciations |
| --- | ---: | ---: |
{splits}

The dictionary's licence:

{licence}
"""
