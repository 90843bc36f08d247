"""Continuations with options: penalties, bans and biases, and beam search.

A recipe leaves some options open, because they depend on the model. A search draws them until the
case is safe to compare with and each option has an effect on the tokens.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Collection, Iterator

import numpy as np
from transformers import PreTrainedTokenizerBase

from .model import (
    MAX_ATTEMPTS,
    Generation,
    GoldenError,
    Options,
    Reference,
    SourceReference,
    is_diverse,
    random_prompt,
    safely,
)
from .recipes import COMMON_RECIPES, FULL, RECIPES, SOURCE_RECIPES, TEXT_CASES, Recipe

# Options that have no effect without beam search.
BEAM_OPTIONS = (
    "num_beams",
    "num_return_sequences",
    "length_penalty",
    "early_stopping",
    "renormalize_logits",
)
# Options that have an effect only if some sequence ends.
END_OPTIONS = ("min_new_tokens", "length_penalty", "early_stopping")
# Options whose effect is not tested by leaving them out, because they set the size of the result.
SIZE_OPTIONS = ("max_new_tokens", "num_return_sequences")
# Values that equal leaving the option out.
DEFAULTS = {"length_penalty": 1.0, "early_stopping": "heuristic"}
# Number of end tokens drawn for a case that needs some, if the checkpoint has none or if theirs
# come too seldom: after so many attempts.
OWN_ENDS = 2
ATTEMPTS_WITHOUT = 100
# Number of tokens that come before an end token, so that the case does not end at once.
TOKENS_BEFORE_END = 3
# Minimum number of tokens of a case, unless its limit is smaller.
MIN_TOKENS = 3
# Length of a banned run that never comes: the maximum that the service accepts.
MAX_RUN = 8
# Minimum share of a checkpoint's sequences that end for each of the two reasons.
MIN_REASON_SHARE = 0.15
# Length of a decoder's prompt after its start: more than one piece.
DECODER_PROMPT = 11


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptionCase:
    """A case: its request, its result, and its margin; see ``model.safely``."""

    name: str
    prompt: list[int]
    options: Options
    generation: Generation
    margin: float


# --- Options that a recipe leaves open ------------------------------------------------------------


def draw_options(
    reference: Reference,
    recipe: Recipe,
    prompt: list[int],
    *,
    own_ends: bool,
    rng: np.random.Generator,
) -> Options | None:
    """Draws the options that the variants of ``recipe`` share; None if the prompt does not suit.

    With ``own_ends``, a case that needs end tokens gets others than the checkpoint's. Options that
    depend on the output use the output with the options drawn before.
    """
    options: Options = {"max_new_tokens": recipe.max_new_tokens, **recipe.options}
    if isinstance(reference, SourceReference):
        options |= decoder_prompt(reference, recipe, rng)

    def output() -> list[int]:
        return reference.generate(prompt, options).best

    number = recipe.ends
    if own_ends and (recipe.end_bias or recipe.named_options & set(END_OPTIONS)):
        number = max(number, OWN_ENDS)
    if number:
        late = output()[TOKENS_BEFORE_END:]
        if not late:
            return None
        others = rng.choice(reference.vocab_size, size=number, replace=False).tolist()
        ends = dict.fromkeys([int(rng.choice(late)), *others])
        options["eos_token_ids"] = list(ends)[:number]

    ends = options.get("eos_token_ids", reference.eos_token_ids)
    biases: dict[int, float] = {}
    if recipe.end_bias:
        biases = dict.fromkeys(ends, recipe.end_bias)
        options["logit_bias"] = [list(pair) for pair in biases.items()]
    for bias in recipe.biases:
        candidates = output() if bias < 0 else range(reference.vocab_size)
        biases.setdefault(int(rng.choice(candidates)), bias)
        options["logit_bias"] = [list(pair) for pair in biases.items()]

    for name in recipe.tokens:
        options[name] = int(rng.integers(reference.vocab_size))
    if recipe.suppressed:
        known = sorted(set(output()))
        if len(known) < recipe.suppressed:
            return None
        suppressed = rng.choice(known, size=recipe.suppressed, replace=False)
        options["suppress_tokens"] = suppressed.tolist()

    banned: list[list[int]] = []
    for length in recipe.runs:
        # A run may begin in the prompt, but must end in the new tokens.
        before = reference.before(prompt, options)
        tokens = before + output()
        first = max(len(before) + 1, length)
        if len(tokens) < first:
            return None
        end = int(rng.integers(first, len(tokens) + 1))
        banned.append(tokens[end - length : end])
        options["bad_words_token_ids"] = list(banned)
    if recipe.ineffective_runs:
        # The output has only the first half of one run and nothing of the next, and the
        # reference ignores runs of one end token.
        random = rng.integers(reference.vocab_size, size=MAX_RUN).tolist()
        options["bad_words_token_ids"] += [[output()[0], random[0]], random]
        options["bad_words_token_ids"] += [[end] for end in ends]
    return options


def decoder_prompt(reference: SourceReference, recipe: Recipe, rng: np.random.Generator) -> Options:
    """A decoder's prompt, for every third recipe and for those that fill the context."""
    length = 0
    if "forced_bos_token_id" in recipe.tokens:
        return {}  # It is forced only right after the start.
    if recipe.prompt == FULL:
        length = reference.max_length - recipe.max_new_tokens - 1
    elif zlib.crc32(recipe.name.encode()) % 3 == 0:
        length = DECODER_PROMPT
    tokens: list[int] = rng.integers(reference.vocab_size, size=length).tolist()
    return {"decoder_token_ids": tokens} if length else {}


def without(options: Options, name: str) -> Options:
    """The options that remain when ``name`` and all options that need it are removed."""
    dropped = BEAM_OPTIONS if name == "num_beams" else (name,)
    return {other: value for other, value in options.items() if other not in dropped}


def each_has_effect(reference: Reference, prompt: list[int], options: Options) -> bool:
    """Whether each of ``options`` changes the tokens."""
    tokens = reference.generate(prompt, options).token_ids
    for name, value in options.items():
        if name in SIZE_OPTIONS or value == DEFAULTS.get(name):
            continue
        if reference.generate(prompt, without(options, name)).token_ids == tokens:
            return False
    return True


def all_differ(reference: Reference, prompt: list[int], variants: list[Options]) -> bool:
    """Whether all of ``variants`` give different tokens."""
    seen: list[list[list[int]]] = []
    for options in variants:
        tokens = reference.generate(prompt, options).token_ids
        if tokens in seen:
            return False
        seen.append(tokens)
    return True


def is_sufficient(reference: Reference, recipe: Recipe, case: OptionCase) -> bool:
    """Whether ``case`` has as many and as varied tokens as ``recipe`` requires."""
    best = case.generation.best
    if len(best) < min(MIN_TOKENS, recipe.max_new_tokens):
        return False
    # A penalty below 1 causes repetition.
    if case.options.get("repetition_penalty", 1.0) >= 1.0 and not is_diverse(best):
        return False
    longest = max(len(tokens) for tokens in case.generation.token_ids)
    before = reference.before(case.prompt, case.options)
    return recipe.prompt != FULL or len(before) + longest == reference.max_length


def make_cases(reference: Reference, recipe: Recipe, seed: int) -> list[OptionCase]:
    """Makes the cases of ``recipe`` with the first suitable random prompt of this seed."""
    room = reference.max_length - recipe.max_new_tokens
    if isinstance(reference, SourceReference):
        # A source takes no room from the generated tokens.
        room = reference.max_length
    length = room if recipe.prompt == FULL else min(recipe.prompt, room)
    for attempt in range(MAX_ATTEMPTS):
        # The seed includes the name, so cases stay the same when others are added or removed.
        draw = (seed, zlib.crc32(recipe.name.encode()), attempt)
        prompt = random_prompt(reference, draw, length)
        shared = draw_options(
            reference,
            recipe,
            prompt,
            own_ends=not reference.eos_token_ids or attempt >= ATTEMPTS_WITHOUT,
            rng=np.random.default_rng([*draw, 1]),
        )
        if shared is None:
            continue
        variants = {name: shared | options for name, options in recipe.variants.items()}
        if not all_differ(reference, prompt, list(variants.values())):
            continue
        if not all(each_has_effect(reference, prompt, options) for options in variants.values()):
            continue
        cases = []
        for name, options in variants.items():
            result = safely(reference, prompt, options)
            if result is None:
                break
            case = OptionCase(
                name=recipe.name + name,
                prompt=prompt,
                options=options,
                generation=result[0],
                margin=result[1],
            )
            if not is_sufficient(reference, recipe, case):
                break
            cases.append(case)
        if len(cases) == len(variants):
            return cases
    raise GoldenError(f"no prompt for the recipe {recipe.name!r} in {MAX_ATTEMPTS} attempts")


def recipes_of(reference: Reference, share: slice) -> tuple[Recipe, ...]:
    """The recipes of a checkpoint: ``share`` of the general ones, and all of the others."""
    for_sources = SOURCE_RECIPES if isinstance(reference, SourceReference) else ()
    return (*RECIPES[share], *COMMON_RECIPES, *for_sources)


def option_cases(
    reference: Reference, seed: int, share: slice, known: Collection[str] = ()
) -> Iterator[OptionCase]:
    """The cases of ``recipes_of`` whose names are not in ``known``, without a tokenizer."""
    for recipe in recipes_of(reference, share):
        if {recipe.name + variant for variant in recipe.variants} <= set(known):
            continue
        # With an encoder, prompts whose variants all differ are rare. Models without one test the
        # same of beam search.
        if len(recipe.variants) == 1 or not isinstance(reference, SourceReference):
            yield from make_cases(reference, recipe, seed)


def check_option_cases(cases: list[OptionCase]) -> None:
    """Raise a GoldenError if nearly all sequences end for one reason."""
    reasons = [reason for case in cases for reason in case.generation.finish_reasons]
    for reason in ("eos", "length"):
        if reasons.count(reason) < MIN_REASON_SHARE * len(reasons):
            raise GoldenError(f"only {reasons.count(reason)} of {len(reasons)} end by {reason}")


# --- Text prompts, for checkpoints with a tokenizer -----------------------------------------------


def text_option_cases(
    reference: Reference, tokenizer: PreTrainedTokenizerBase
) -> Iterator[tuple[str, OptionCase]]:
    """Prompt's text and continuation of each case of a checkpoint with a tokenizer."""
    for name, texts, wanted in TEXT_CASES:
        yield first_suitable_text(reference, tokenizer, name, texts, wanted)


def first_suitable_text(
    reference: Reference,
    tokenizer: PreTrainedTokenizerBase,
    name: str,
    texts: tuple[str, ...],
    wanted: Options,
) -> tuple[str, OptionCase]:
    """Finds the first suitable text of ``texts``, with the largest suitable limit."""
    for limit in range(wanted["max_new_tokens"], 0, -1):
        options = wanted | {"max_new_tokens": limit}
        for text in texts:
            prompt: list[int] = tokenizer.encode(text)
            if not each_has_effect(reference, prompt, options):
                continue
            result = safely(reference, prompt, options)
            if result is not None:
                return text, OptionCase(
                    name=name,
                    prompt=prompt,
                    options=options,
                    generation=result[0],
                    margin=result[1],
                )
    raise GoldenError(f"no text of {name!r} has a safe continuation")
