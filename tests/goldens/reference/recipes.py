"""Cases with options: recipes for random prompts, and text prompts.

A recipe says which options a case has, and leaves open what depends on the model: the prompt, the
runs to ban, the tokens to bias, the end tokens.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from .model import Options

# Stands for a prompt that fills the context together with the new tokens.
FULL = 0


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Requirements of a case, or of a few cases with one prompt.

    Attributes:
        name: Name of the case.
        prompt: Number of tokens of the prompt, fewer if the context is shorter; or ``FULL``.
        max_new_tokens: Option of this name.
        options: All other options that do not depend on the prompt.
        variants: Further options of each variant; all results must differ.
        ends: Number of end tokens that replace the checkpoint's.
        runs: Length of each run to ban. Each is taken from the output without the ban.
        ineffective_runs: Whether to ban further runs, which must change nothing.
        biases: Values of the biases. One below 0 is for a token of the output without it, others
            are for any token.
        end_bias: A bias on all end tokens; 0 for none.
        tokens: Options whose value is an arbitrary token.
        suppressed: Number of tokens to suppress, taken from the output without suppression.
    """

    name: str
    prompt: int
    max_new_tokens: int
    options: Options = dataclasses.field(default_factory=dict)
    variants: dict[str, Options] = dataclasses.field(default_factory=lambda: {"": {}})
    ends: int = 0
    runs: tuple[int, ...] = ()
    ineffective_runs: bool = False
    biases: tuple[float, ...] = ()
    end_bias: float = 0.0
    tokens: tuple[str, ...] = ()
    suppressed: int = 0

    @property
    def named_options(self) -> set[str]:
        """Names of the fixed options of any variant."""
        return {*self.options, *(name for options in self.variants.values() for name in options)}


def beams(number: int, **options: Any) -> Options:
    """Options of a beam search."""
    return {"num_beams": number, **options}


def stopping(*forms: str) -> dict[str, Options]:
    """A variant for each form of early stopping."""
    return {f"-{form}": {"early_stopping": form} for form in forms}


STOPPINGS = stopping("heuristic", "first", "never")
LENGTH_PENALTIES = {f"-{value:g}": {"length_penalty": value} for value in (-1.0, 0.0, 1.0, 2.0)}
RECIPES = (
    # Repetition penalties: values above 1 discourage repetition, values below 1 encourage it.
    Recipe("rep-1.1", 31, 32, {"repetition_penalty": 1.1}),
    Recipe("rep-1.3", 1, 40, {"repetition_penalty": 1.3}),
    Recipe("rep-2", 16, 24, {"repetition_penalty": 2.0}),
    Recipe("rep-5", 48, 12, {"repetition_penalty": 5.0}),
    Recipe("rep-0.8", 24, 16, {"repetition_penalty": 0.8}),
    Recipe("rep-0.5", 9, 8, {"repetition_penalty": 0.5}),
    Recipe("rep-1.2-full", FULL, 20, {"repetition_penalty": 1.2}),
    # Runs that must not repeat. A prompt of one token is shorter than the run.
    Recipe("ngram-1", 17, 24, {"no_repeat_ngram_size": 1}),
    Recipe("ngram-1-long-prompt", 72, 12, {"no_repeat_ngram_size": 1}),
    Recipe("ngram-2", 64, 40, {"no_repeat_ngram_size": 2}),
    Recipe("ngram-2-short-prompt", 1, 32, {"no_repeat_ngram_size": 2}),
    Recipe("ngram-3", 1, 40, {"no_repeat_ngram_size": 3}),
    Recipe("ngram-4", 33, 40, {"no_repeat_ngram_size": 4}),
    Recipe("ngram-2-full", FULL, 32, {"no_repeat_ngram_size": 2}),
    # Banned runs.
    Recipe("ban-1", 47, 16, runs=(1,)),
    Recipe("ban-1-four-times", 2, 24, runs=(1, 1, 1, 1)),
    Recipe("ban-2", 25, 24, runs=(2,)),
    Recipe("ban-3", 96, 20, runs=(3,)),
    Recipe("ban-8", 7, 30, runs=(8,)),
    Recipe("ban-mixed", 63, 32, runs=(1, 2, 3, 2, 1)),
    Recipe("ban-decoys", 1, 24, runs=(2, 1), ineffective_runs=True),
    Recipe("ban-full", FULL, 16, runs=(1, 2)),
    # Biases.
    Recipe("bias-down", 12, 16, biases=(-4.0,)),
    Recipe("bias-up", 65, 24, biases=(5.0,)),
    Recipe("bias-many", 32, 32, biases=(-2.5, 6.0, -1e4, 4.0, -3.25, 5.0, -1.0, 0.5)),
    Recipe("bias-end", 23, 24, end_bias=4.0),
    # Delayed end tokens.
    Recipe("min-8", 15, 24, {"min_new_tokens": 8}),
    Recipe("min-all", 49, 20, {"min_new_tokens": 20}),
    Recipe("min-1", 3, 12, {"min_new_tokens": 1}),
    Recipe("min-16", 97, 24, {"min_new_tokens": 16}),
    Recipe("min-full", FULL, 16, {"min_new_tokens": 12}),
    # End tokens other than the checkpoint's.
    Recipe("ends-1", 8, 32, ends=1),
    Recipe("ends-3", 40, 40, ends=3),
    Recipe("ends-8", 95, 24, ends=8),
    # Several of these options together.
    Recipe("rep-ngram", 56, 40, {"repetition_penalty": 1.05, "no_repeat_ngram_size": 2}),
    Recipe("rep-0.7-ngram", 48, 24, {"repetition_penalty": 0.7, "no_repeat_ngram_size": 2}),
    Recipe("rep-ban", 111, 16, {"repetition_penalty": 1.2}, runs=(1, 2)),
    Recipe("ngram-min", 32, 24, {"no_repeat_ngram_size": 2, "min_new_tokens": 10}),
    Recipe("ban-bias", 80, 24, runs=(2, 1), biases=(-3.0, 4.0)),
    Recipe("rep-min-ends", 88, 32, {"repetition_penalty": 1.2, "min_new_tokens": 12}, ends=3),
    Recipe(
        "everything",
        16,
        32,
        {"repetition_penalty": 1.05, "no_repeat_ngram_size": 2, "min_new_tokens": 8},
        ends=3,
        runs=(1, 2),
        biases=(-3.0, 4.0),
    ),
    # Beam search without other options.
    Recipe("beams-2", 1, 24, beams(2)),
    Recipe("beams-3", 16, 17, beams(3)),
    Recipe("beams-4", 33, 32, beams(4)),
    Recipe("beams-5", 64, 20, beams(5)),
    Recipe("beams-8", 24, 40, beams(8)),
    Recipe("beams-2-full", FULL, 24, beams(2)),
    # Several of the best sequences.
    Recipe("beams-2-both", 7, 16, beams(2, num_return_sequences=2)),
    Recipe("beams-4-best-2", 48, 24, beams(4, num_return_sequences=2)),
    Recipe("beams-4-all", 97, 24, beams(4, num_return_sequences=4)),
    Recipe("beams-8-best-5", 12, 32, beams(8, num_return_sequences=5)),
    Recipe("beams-8-all", 72, 16, beams(8, num_return_sequences=8)),
    Recipe("beams-5-all-full", FULL, 40, beams(5, num_return_sequences=5)),
    Recipe("beams-4-one-token", 25, 1, beams(4, num_return_sequences=4)),
    Recipe("beams-8-last-token", FULL, 1, beams(8, num_return_sequences=8)),
    Recipe("beams-3-two-tokens", 49, 2, beams(3, num_return_sequences=3)),
    # Preference of long or short hypotheses.
    Recipe("beams-2-length--1", 15, 32, beams(2, length_penalty=-1.0)),
    Recipe("beams-3-length--0.5", 80, 24, beams(3, length_penalty=-0.5, num_return_sequences=3)),
    Recipe("beams-5-length-0", 47, 32, beams(5, length_penalty=0.0)),
    Recipe("beams-8-length-0.6", 31, 24, beams(8, length_penalty=0.6, num_return_sequences=3)),
    Recipe("beams-4-length-2", 96, 32, beams(4, length_penalty=2.0)),
    Recipe(
        "beams-3-length",
        17,
        32,
        beams(3, num_return_sequences=3),
        variants=LENGTH_PENALTIES,
        ends=2,
    ),
    # Rules that stop the search.
    Recipe("beams-2-stop", 9, 32, beams(2, num_return_sequences=2), variants=STOPPINGS),
    Recipe("beams-3-stop", 65, 24, beams(3, length_penalty=2.0), variants=STOPPINGS),
    Recipe("beams-4-stop", 23, 40, beams(4, num_return_sequences=4), variants=STOPPINGS),
    Recipe(
        "beams-5-ends-stop",
        32,
        32,
        beams(5, num_return_sequences=5, length_penalty=0.6),
        variants=stopping("heuristic", "first"),
        ends=3,
    ),
    Recipe(
        "beams-3-ends-stop",
        80,
        24,
        beams(3, num_return_sequences=3, length_penalty=2.0),
        variants=stopping("heuristic", "never"),
        ends=2,
    ),
    Recipe("beams-8-stop", 63, 30, beams(8, num_return_sequences=4), variants=STOPPINGS),
    # A length penalty of 0 or less makes "never" the same as "heuristic".
    Recipe(
        "beams-4-length-0-stop",
        5,
        24,
        beams(4, num_return_sequences=4, length_penalty=0.0),
        variants=stopping("heuristic", "first"),
    ),
    # Beam search with the options of greedy decoding.
    Recipe("beams-4-min", 2, 24, beams(4, min_new_tokens=10)),
    Recipe("beams-3-min-all", 95, 16, beams(3, min_new_tokens=16, num_return_sequences=3)),
    Recipe("beams-5-min-ends", 24, 32, beams(5, min_new_tokens=12), ends=2),
    Recipe("beams-4-ngram-1", 16, 24, beams(4, no_repeat_ngram_size=1)),
    Recipe("beams-3-ngram-2", 56, 40, beams(3, no_repeat_ngram_size=2)),
    Recipe("beams-2-ngram-3", 1, 40, beams(2, no_repeat_ngram_size=3)),
    Recipe("beams-4-ban", 40, 24, beams(4), runs=(1, 1)),
    Recipe("beams-3-ban-mixed", 88, 32, beams(3, num_return_sequences=3), runs=(2, 3, 1)),
    Recipe("beams-8-ban-decoys", 3, 16, beams(8), runs=(2, 1), ineffective_runs=True),
    Recipe("beams-4-bias", 25, 24, beams(4), biases=(-3.0, 4.0, -2.0)),
    Recipe("beams-2-bias-end", 104, 20, beams(2), end_bias=-2.0),
    Recipe("beams-4-rep-1.3", 31, 32, beams(4, repetition_penalty=1.3)),
    Recipe("beams-3-rep-0.8", 17, 16, beams(3, repetition_penalty=0.8)),
    Recipe("beams-4-ends-3", 48, 40, beams(4, num_return_sequences=4), ends=3),
    Recipe("beams-8-ends-8", 15, 24, beams(8, num_return_sequences=8), ends=8),
    Recipe("beams-3-first-min", 64, 24, beams(3, early_stopping="first", min_new_tokens=6)),
    Recipe(
        "beams-4-everything",
        33,
        32,
        beams(
            4,
            num_return_sequences=4,
            length_penalty=0.6,
            early_stopping="never",
            repetition_penalty=1.1,
            no_repeat_ngram_size=2,
            min_new_tokens=6,
        ),
        ends=3,
        runs=(1, 2),
        biases=(-3.0, 4.0),
    ),
    Recipe(
        "beams-8-everything-full",
        FULL,
        24,
        beams(
            8,
            num_return_sequences=2,
            length_penalty=2.0,
            repetition_penalty=1.05,
            no_repeat_ngram_size=2,
        ),
        runs=(2,),
        biases=(-3.0,),
    ),
    # The strongest length penalties. At -10, scores fall below -1e9 after some tokens, and
    # Transformers then mistakes them for unused entries. So these sequences are short.
    Recipe(
        "beams-4-length--10",
        21,
        5,
        beams(4, num_return_sequences=4, length_penalty=-10.0),
        ends=4,
    ),
    Recipe(
        "beams-8-length--2-min",
        14,
        24,
        beams(8, num_return_sequences=8, length_penalty=-2.0, min_new_tokens=4),
        ends=3,
    ),
    Recipe(
        "beams-3-length-10-stop",
        30,
        24,
        beams(3, num_return_sequences=3, length_penalty=10.0),
        variants=stopping("heuristic", "first"),
        ends=2,
    ),
)

# Recipes that every checkpoint uses.
COMMON_RECIPES = (
    # Forced tokens: the first one needs a prompt of one token, the last one a sequence without an
    # end token.
    Recipe("forced-bos", 1, 12, tokens=("forced_bos_token_id",)),
    Recipe("forced-eos", 20, 6, {"min_new_tokens": 5}, tokens=("forced_eos_token_id",)),
    Recipe(
        "forced-both-rep",
        1,
        8,
        {"repetition_penalty": 1.2, "min_new_tokens": 7},
        tokens=("forced_bos_token_id", "forced_eos_token_id"),
    ),
    Recipe("suppress-1", 30, 16, suppressed=1),
    Recipe("suppress-3-ban", 12, 20, suppressed=3, runs=(2,)),
    Recipe(
        "beams-4-forced-bos",
        1,
        12,
        beams(4, num_return_sequences=4),
        tokens=("forced_bos_token_id",),
    ),
    Recipe(
        "beams-3-forced-eos",
        9,
        5,
        beams(3, num_return_sequences=3, min_new_tokens=4),
        tokens=("forced_eos_token_id",),
    ),
    Recipe("beams-3-suppress-2", 24, 16, beams(3, num_return_sequences=2), suppressed=2),
    # Scores normalized once more, as OPUS-MT asks for: with bans that take much from the others.
    Recipe(
        "beams-4-renorm-ngram",
        12,
        20,
        beams(4, renormalize_logits=True, no_repeat_ngram_size=2),
    ),
    Recipe(
        "beams-3-renorm-ban",
        26,
        16,
        beams(3, num_return_sequences=3, renormalize_logits=True, length_penalty=0.6),
        runs=(1, 1),
    ),
)
# Recipes that checkpoints with an encoder use as well.
SOURCE_RECIPES = (
    Recipe("source-rep-1.5", 14, 16, {"encoder_repetition_penalty": 1.5}),
    Recipe("source-rep-0.7", 40, 16, {"encoder_repetition_penalty": 0.7}),
    Recipe("source-ngram-1", 30, 16, {"encoder_no_repeat_ngram_size": 1}),
    Recipe("source-ngram-2", 90, 32, {"encoder_no_repeat_ngram_size": 2}),
    Recipe(
        "source-rep-ngram",
        60,
        24,
        {
            "encoder_repetition_penalty": 2.0,
            "repetition_penalty": 1.1,
            "encoder_no_repeat_ngram_size": 2,
        },
    ),
    Recipe("beams-4-source-rep", 20, 12, beams(4, encoder_repetition_penalty=1.4)),
    Recipe(
        "beams-3-source-ngram",
        60,
        16,
        beams(3, num_return_sequences=3, encoder_no_repeat_ngram_size=1),
    ),
)


# --- Text prompts, for checkpoints with a tokenizer -----------------------------------------------

# Name, prompts, of which the first suitable one is used, and options.
TEXT_CASES = (
    (
        "ngram-3",
        ("TensorFlow is", "A tensor is", "The model is"),
        {"max_new_tokens": 32, "no_repeat_ngram_size": 3},
    ),
    (
        "rep-1.2",
        ("The function returns", "To save a model,"),
        {"max_new_tokens": 24, "repetition_penalty": 1.2},
    ),
    (
        "beams-4",
        ("Once upon a time", "To train a model, call", "The server"),
        beams(4, max_new_tokens=24),
    ),
    (
        "beams-3-all",
        ("A graph is", "The shape of a tensor", "This function"),
        beams(3, max_new_tokens=16, num_return_sequences=3),
    ),
    (
        "beams-2-ngram-2",
        ("import tensorflow as tf\n", "The dataset", "For example,"),
        beams(2, max_new_tokens=20, no_repeat_ngram_size=2),
    ),
    # Stop strings. No prompt ends with the beginning of one, because the reference would count it.
    (
        "beams-4-stop",
        ("Once upon a time", "To train a model, call", "The server", "A graph is"),
        beams(4, max_new_tokens=24, num_return_sequences=4, stop=[".", " the"]),
    ),
    (
        "beams-3-stop-often",
        ("Once upon a time", "To train a model, call", "The server", "A graph is"),
        beams(3, max_new_tokens=24, num_return_sequences=3, stop=["e"], length_penalty=2.0),
    ),
    (
        "beams-8-stop-across-tokens",
        ("Once upon a time", "This function", "The model", "A tensor"),
        beams(
            8,
            max_new_tokens=24,
            num_return_sequences=8,
            early_stopping="first",
            stop=["he f", "n of t", "or th", "is a", "to a", " of a", "in t", "at i"],
        ),
    ),
)
