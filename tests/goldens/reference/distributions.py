"""Distributions of the next token: whole, after all filters, and as log-probabilities."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import torch

from .model import (
    MAX_ATTEMPTS,
    MIN_MARGIN,
    NOISY_RUNS,
    GoldenError,
    Options,
    Reference,
    SourceReference,
    is_diverse,
    random_prompt,
    safely,
)
from .options import each_has_effect

# Lengths of the prompts for the test of the sampled distribution, and the temperatures it tests.
PROBABILITY_PROMPT_LENGTHS = (4, 17, 48)
TEMPERATURES = (1.0, 0.7)
# Minimum perplexity: a distribution of almost one token would hide errors of sampling.
MIN_PERPLEXITY = 5.0
# Decimals of whole distributions and of log-probabilities.
DIGITS = 8
# Significant digits of distributions after truncation, where 0 means removed.
SIGNIFICANT_DIGITS = 8
# Parts of seeds, which no other kind of case uses.
SAMPLING, LOGPROBS = 10_001, 10_002


def probability_records(reference: Reference, seed: int) -> Iterator[dict[str, Any]]:
    """The next token's whole distribution after a few random prompts, for tests of sampling."""
    for length in PROBABILITY_PROMPT_LENGTHS:
        for attempt in range(MAX_ATTEMPTS):
            prompt = random_prompt(reference, (seed, length, MAX_ATTEMPTS, attempt), length)
            plain = reference.probabilities(prompt, 1.0)
            if math.exp(-sum(p * math.log(p) for p in plain if p)) >= MIN_PERPLEXITY:
                break
        else:
            raise GoldenError(f"no prompt of {length} tokens has a wide distribution after it")
        for temperature in TEMPERATURES:
            values = reference.probabilities(prompt, temperature)
            yield {
                "prompt_token_ids": prompt,
                "temperature": temperature,
                "probabilities": [round(value, DIGITS) for value in values],
            }


# --- After processors and warpers -----------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class SamplingRecipe:
    """Requirements of a sampling case.

    Attributes:
        name: Name of the case.
        prompt: Tokens of the prompt.
        options: All options except those that depend on the prompt.
        idle: Options without an effect here, because another filter removes more. ``top_p`` and
            ``min_p`` remove from the same ranking, so one of them always has none.
        biased: Whether to also ban and bias some of the likeliest tokens.
    """

    name: str
    prompt: int
    options: Options
    idle: tuple[str, ...] = ()
    biased: bool = False


# Default of top_k. The first case uses it, and the others set top_k.
DEFAULT_TOP_K = 50
SAMPLING_RECIPES = (
    SamplingRecipe("temperature", 16, {"temperature": 1.7}),
    SamplingRecipe("top-k", 5, {"top_k": 7}),
    SamplingRecipe("top-k-1", 31, {"top_k": 1}),
    SamplingRecipe("top-p", 24, {"top_k": 0, "top_p": 0.8}),
    SamplingRecipe("min-p", 33, {"top_k": 0, "min_p": 0.1}),
    SamplingRecipe("typical-p", 48, {"top_k": 0, "typical_p": 0.7}),
    SamplingRecipe(
        "top-k-top-p-typical-p",
        2,
        {"temperature": 1.6, "top_k": 12, "top_p": 0.85, "typical_p": 0.8},
    ),
    SamplingRecipe(
        "all-filters",
        64,
        {"temperature": 1.6, "top_k": 20, "top_p": 0.95, "min_p": 0.15, "typical_p": 0.8},
        idle=("top_k", "top_p"),
    ),
    SamplingRecipe(
        "penalties",
        40,
        {"temperature": 0.9, "top_k": 0, "repetition_penalty": 1.4, "no_repeat_ngram_size": 2},
        biased=True,
    ),
    SamplingRecipe(
        "everything",
        95,
        {
            "temperature": 1.4,
            "top_k": 20,
            "top_p": 0.85,
            "min_p": 0.02,
            "typical_p": 0.8,
            "repetition_penalty": 1.2,
            "no_repeat_ngram_size": 2,
        },
        idle=("min_p",),
        biased=True,
    ),
    SamplingRecipe("epsilon-cutoff", 20, {"top_k": 0, "epsilon_cutoff": 0.03}),
    SamplingRecipe("eta-cutoff", 12, {"top_k": 0, "eta_cutoff": 0.05}),
    SamplingRecipe(
        "top-p-epsilon-cutoff",
        28,
        {"temperature": 1.5, "top_k": 0, "top_p": 0.95, "epsilon_cutoff": 0.02},
        idle=("top_p",),
    ),
    SamplingRecipe(
        "typical-p-eta-cutoff",
        44,
        {"temperature": 1.3, "top_k": 0, "typical_p": 0.9, "eta_cutoff": 0.1},
        idle=("typical_p",),
    ),
)
# Biases of some of the likeliest tokens, where they have an effect.
BIASES = (-2.0, 1.5)
# Length of a decoder's prompt after its start, long enough for pairs of tokens to repeat.
DECODER_PROMPT = 80
# Minimum change of some probability for an option to count as having an effect.
MIN_CHANGE = 1e-3
# Minimum number of tokens left, unless top_k is smaller: fewer would test a filter badly.
MIN_KEPT = 3


def distribution(
    reference: Reference, prompt: list[int], options: Options, noise: float = 0.0
) -> torch.Tensor:
    """The float64 distribution that ``options`` sample the token after ``prompt`` from. [V]."""
    options = {"top_k": DEFAULT_TOP_K, **options, "do_sample": True, "max_new_tokens": 1}
    generation = reference.generate(prompt, options, exact=True, noise=noise)
    return generation.processed[0, 0].softmax(-1)


def removes_surely(
    reference: Reference, prompt: list[int], options: Options, expected: torch.Tensor
) -> bool:
    """Whether float32, and logits with noise far above its errors, remove the same tokens."""
    rough = reference.generate(
        prompt, {"top_k": DEFAULT_TOP_K, **options, "do_sample": True, "max_new_tokens": 1}
    )
    if not torch.equal(rough.processed[0, 0].isfinite(), expected > 0):
        return False
    for seed in range(NOISY_RUNS):
        torch.manual_seed(seed)
        noisy = distribution(reference, prompt, options, noise=MIN_MARGIN)
        if not torch.equal(noisy > 0, expected > 0):
            return False
    return True


def sampling_options(
    reference: Reference, recipe: SamplingRecipe, prompt: list[int], seed: tuple[int, ...]
) -> Options:
    """The options of ``recipe``, with its bans and biases if it has any."""
    options = recipe.options
    if not recipe.biased:
        return options
    rng = np.random.default_rng(seed)
    if isinstance(reference, SourceReference):
        # A penalty of repetition needs more than the decoder's start token.
        tokens = rng.integers(reference.vocab_size, size=DECODER_PROMPT).tolist()
        options = {**options, "decoder_token_ids": tokens}
    likeliest = distribution(reference, prompt, options).topk(8).indices.tolist()
    banned, *biased = rng.choice(likeliest, size=1 + len(BIASES), replace=False).tolist()
    pairs = zip(biased, BIASES, strict=True)
    last = reference.before(prompt, options)[-1]
    return {
        **options,
        # The second run begins with the last token, so its other token is banned at this step.
        "bad_words_token_ids": [[banned], [last, likeliest[0]], [likeliest[1]] * 2],
        "logit_bias": [list(pair) for pair in pairs],
    }


def each_option_changes(
    reference: Reference,
    prompt: list[int],
    options: Options,
    idle: tuple[str, ...],
    expected: torch.Tensor,
) -> bool:
    """Whether each of ``options`` except ``idle`` changes the distribution."""
    for name, value in options.items():
        if name in idle or not value:
            continue
        rest = {other: value for other, value in options.items() if other != name}
        if name == "top_k":
            rest["top_k"] = 0  # Without it, the default would apply.
        changed = distribution(reference, prompt, rest)
        if float((changed - expected).abs().max()) < MIN_CHANGE:
            return False
    return True


def sampling_records(
    reference: Reference, seed: int, known: Collection[str] = ()
) -> Iterator[dict[str, Any]]:
    """The next token's distribution under sampling options, zero for removed tokens.

    Cases whose names are in ``known`` are left out.
    """
    for index, recipe in enumerate(SAMPLING_RECIPES):
        if recipe.name in known:
            continue
        for attempt in range(MAX_ATTEMPTS):
            draw = (seed, SAMPLING, index, attempt)
            prompt = random_prompt(reference, draw, recipe.prompt)
            options = sampling_options(reference, recipe, prompt, (*draw, 1))
            expected = distribution(reference, prompt, options)
            if int((expected > 0).sum()) < min(MIN_KEPT, options.get("top_k") or MIN_KEPT):
                continue
            if not each_option_changes(reference, prompt, options, recipe.idle, expected):
                continue
            if removes_surely(reference, prompt, options, expected):
                break
        else:
            raise GoldenError(f"no prompt for the sampling case {recipe.name!r}")
        yield {
            "name": recipe.name,
            "prompt_token_ids": prompt,
            "options": options,
            "probabilities": [
                float(f"{value:.{SIGNIFICANT_DIGITS}g}") for value in expected.tolist()
            ],
        }


# --- Log-probabilities ----------------------------------------------------------------------------

# Name, length of the prompt, and a penalty, which the log-probabilities must not include.
LOGPROB_CASES = (("short", 3, 1.3), ("middle", 24, 1.2), ("long", 65, 1.5))
LOGPROB_NEW_TOKENS = 6
TOP_LOGPROBS = 5


def logprob_records(reference: Reference, seed: int) -> Iterator[dict[str, Any]]:
    """The model's own log-probabilities of tokens that a penalty made it choose."""
    for index, (name, length, penalty) in enumerate(LOGPROB_CASES):
        options: Options = {
            "max_new_tokens": LOGPROB_NEW_TOKENS,
            "repetition_penalty": penalty,
        }
        for attempt in range(MAX_ATTEMPTS):
            prompt = random_prompt(reference, (seed, LOGPROBS, index, attempt), length)
            if not each_has_effect(reference, prompt, options):
                continue
            result = safely(reference, prompt, options)
            if result is None or not is_diverse(result[0].best):
                continue
            generation, margin = result
            logprobs = generation.raw[:, 0].log_softmax(-1)
            # One more than is written, to check that the last written token is not a close race.
            top = logprobs.topk(TOP_LOGPROBS + 1)
            leads = top.values[:, :-1] - top.values[:, 1:]
            if len(generation.best) == LOGPROB_NEW_TOKENS and float(leads.min()) > MIN_MARGIN:
                break
        else:
            raise GoldenError(f"no prompt for the log-probabilities {name!r}")
        yield {
            "name": name,
            "prompt_token_ids": prompt,
            "options": {**options, "logprobs": TOP_LOGPROBS},
            "token_ids": generation.best,
            "finish_reason": generation.finish_reasons[0],
            "logprobs": [
                {
                    "chosen": [token, round(float(values[token]), DIGITS)],
                    "top": [[other, round(float(values[other]), DIGITS)] for other in others],
                }
                for token, others, values in zip(
                    generation.best, top.indices[:, :-1].tolist(), logprobs, strict=True
                )
            ],
            "margin": math.floor(margin * 1e4) / 1e4,
        }
