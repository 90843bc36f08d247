"""The demo model's card: everything in it is measured by `train.py` or read from the corpus."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from transformers import GPT2LMHeadModel, PreTrainedTokenizerFast, set_seed

PROMPTS = (
    "TensorFlow is",
    "TensorFlow can be used to",
    "The model is trained",
    "A tensor is",
    "This function returns",
)
NEW_TOKENS = 48
TEMPERATURE = 0.7
SEEDS = (0, 1)


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One prompt and its continuation by the saved model, read back in float32."""

    prompt: str
    greedy: str
    sampled: list[str]  # one a seed of `SEEDS`, at `TEMPERATURE`


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Facts about a run, and its measurements.

    Perplexities are per token of the model's own BPE.
    """

    recipe: dict[str, Any]  # train.Recipe
    parameters: int
    steps: int
    trained_tokens: int  # steps x tokens a step, repeated epochs counted
    seconds: float  # wall time of training alone
    machine: str
    versions: dict[str, str]
    train_tokens: int  # of one epoch, each document once
    heldout_tokens: int
    training_perplexity: float  # over the last 100 steps
    heldout_perplexity: float  # of the saved float16 weights
    unigram_perplexity: float
    untrained_perplexity: float
    samples: list[Sample]


def sample(model: GPT2LMHeadModel, tokenizer: PreTrainedTokenizerFast) -> list[Sample]:
    """Continues each of `PROMPTS` greedily and at `TEMPERATURE`; nothing is filtered or retried."""
    samples = []
    for prompt in PROMPTS:
        inputs = tokenizer(prompt, return_tensors="pt")

        def continuation(*, inputs: Any = inputs, **options: Any) -> str:
            with torch.no_grad():
                ids = model.generate(
                    inputs["input_ids"],
                    attention_mask=inputs["attention_mask"],
                    max_new_tokens=NEW_TOKENS,
                    **options,
                )
            return tokenizer.decode(ids[0], skip_special_tokens=True)

        sampled = []
        for seed in SEEDS:
            set_seed(seed)
            sampled.append(continuation(do_sample=True, temperature=TEMPERATURE, top_k=0))
        samples.append(Sample(prompt=prompt, greedy=continuation(do_sample=False), sampled=sampled))
    return samples


def _quote(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())


def render(figures: Figures, manifest: dict[str, Any]) -> str:
    """The card as Markdown, with the front matter model hubs read."""
    recipe = figures.recipe
    epochs = figures.trained_tokens / figures.train_tokens
    stages = ", then ".join(f"{steps:,} steps at {length}" for length, steps in recipe["stages"])
    corpus_rows = "\n".join(
        f"| {source['package']} | {source['version']} | {source['licence']} "
        f"| {source['documents']:,} | {source['chars']:,} |"
        for source in manifest["sources"]
    )
    samples = "\n\n".join(
        f"### {s.prompt}\n\nGreedy:\n\n{_quote(s.greedy)}\n\n"
        + "\n\n".join(
            f"Sampled, seed {seed}:\n\n{_quote(text)}"
            for seed, text in zip(SEEDS, s.sampled, strict=True)
        )
        for s in figures.samples
    )
    versions = ", ".join(f"{name} {version}" for name, version in figures.versions.items())
    return f"""\
---
license: apache-2.0
language: en
library_name: transformers
pipeline_tag: text-generation
tags: [gpt2, demo]
---

# Shaperouter demo model

A GPT-2 of {figures.parameters / 1e6:.1f} million parameters, trained from scratch on documentation
of open-source Python packages. It ships inside the Shaperouter service so that a first request
needs no download, and so that tests run on a real trained checkpoint.

It is for demonstrations and tests. It is **not for production**: it writes in the style of API
documentation, and what it says is often wrong.

This card is written by the training script; every figure below is from the run that made the
weights beside it.

## Model

| | |
| --- | --- |
| architecture | `GPT2LMHeadModel`, tied head, `gelu_new` |
| parameters | {figures.parameters:,} |
| layers, heads, width | {recipe["n_layer"]}, {recipe["n_head"]}, {recipe["n_embd"]} |
| positions | {recipe["n_positions"]} |
| vocabulary | 8,192 tokens, byte-level BPE of its own |
| special token | `<|endoftext|>` (id 0) begins, ends and pads |
| weights | float16, safetensors |
| licence | Apache-2.0 |

## Quality

Perplexity per token on {figures.heldout_tokens:,} held-out tokens. Held-out documents come from
files that training never saw, chosen by a hash of their path, with paragraphs close to training
text removed.

| | perplexity |
| --- | ---: |
| this model (the float16 weights, run in float32) | {figures.heldout_perplexity:.1f} |
| token frequencies of the training text | {figures.unigram_perplexity:.1f} |
| the same model, untrained | {figures.untrained_perplexity:.1f} |
| this model on its own training text (last 100 steps) | {figures.training_perplexity:.1f} |

## Limits

- A few million tokens of one kind of text: no general knowledge, no dialogue, no instructions.
- Facts, names and numbers in its output are made up.
- Greedy decoding falls into loops, as it does with most small models.
- English only; code was removed from the corpus, so it does not write code.
- Trained up to {recipe["n_positions"]} positions; longer inputs are outside the checkpoint.

## Continuations

{NEW_TOKENS} new tokens at most, unfiltered, first and only try. Sampling is at temperature
{TEMPERATURE} over the whole vocabulary.

{samples}

## Training

```sh
python corpus.py --wheels WHEELS --output CORPUS
python train.py --corpus CORPUS --work WORK --output MODEL
```

| | |
| --- | --- |
| steps | {stages} positions |
| tokens | {figures.trained_tokens:,} ({recipe["batch_tokens"]:,} a step; {epochs:.1f} times the \
{figures.train_tokens:,} of the training text) |
| emphasis | documents that say "{recipe["subject"]}" appear {recipe["subject_weight"]} times an \
epoch |
| optimizers | Muon ({recipe["matrix_lr"]}) for matrices, AdamW ({recipe["other_lr"]}) for \
the rest |
| schedule | {recipe["warmup_steps"]} warm-up steps, constant, linear to zero over the last \
{recipe["decay_share"]:.0%} |
| precision | float32 |
| seed | {recipe["seed"]} |
| wall time | {figures.seconds / 60:.0f} minutes ({figures.machine}; shared with other work) |
| versions | {versions} |

## Corpus

{manifest["train_documents"]:,} documents with {manifest["train_chars"]:,} characters for training,
{manifest["heldout_documents"]:,} with {manifest["heldout_chars"]:,} held out: docstrings, Markdown
and reStructuredText in the packages' wheels, reduced to prose, exact and near duplicates removed.
Licences are as the wheels' own METADATA declares them. SHA-256 of the result:
`{manifest["sha256"]}`.

| package | version | licence | documents | characters |
| --- | --- | --- | ---: | ---: |
{corpus_rows}
"""
