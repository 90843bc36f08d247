"""Continuations with options: penalties, bans and biases, and beam search.

A search finds what a recipe leaves open, which depends on the model. It continues until the case is
safe to compare with and each option matters: without it, the tokens would differ.
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

# Options that mean nothing without beam search.
OF_BEAMS = ("num_beams", "num_return_sequences", "length_penalty", "early_stopping")
# Options that only change something if some sequence ends.
OF_ENDS = ("min_new_tokens", "length_penalty", "early_stopping")
# Whose presence is not tested by leaving them out: without them there is nothing to compare.
OF_SIZE = ("max_new_tokens", "num_return_sequences")
# Values at which an option is as if it were left out.
DEFAULTS = {"length_penalty": 1.0, "early_stopping": "heuristic"}
# End tokens of its own for a case that needs some, if the checkpoint has none, or if none of so
# many prompts serves because they come too seldom.
OWN_ENDS = 2
ATTEMPTS_WITHOUT = 100
# An end token is drawn from the tokens after so many, or the case would end at once.
TOKENS_BEFORE_END = 3
# Fewer tokens than these tell little, unless no more were asked for.
MIN_TOKENS = 3
# Length of the banned runs that never come, the longest that the service takes.
LONGEST_RUN = 8
# Of a checkpoint's sequences, the least share that ends for each of the two reasons.
MIN_REASON_SHARE = 0.15
# Length of a decoder's prompt, after its start: over a piece of what is read at a time.
DECODER_PROMPT = 11


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptionCase:
    """A case: its request, its result, and how safe it is (``model.safely``)."""

    name: str
    prompt: list[int]
    options: Options
    generation: Generation
    margin: float


# --- What a recipe leaves open --------------------------------------------------------------------


def draw_options(
    reference: Reference,
    recipe: Recipe,
    prompt: list[int],
    *,
    own_ends: bool,
    rng: np.random.Generator,
) -> Options | None:
    """All options that the variants of ``recipe`` share; None if they do not suit the prompt.

    With ``own_ends`` a case that needs end tokens gets others than the checkpoint's. Whatever is
    taken from the output is taken from that with the options drawn before it.
    """
    options: Options = {"max_new_tokens": recipe.max_new_tokens, **recipe.options}
    if isinstance(reference, SourceReference):
        options |= decoder_prompt(reference, recipe, rng)

    def output() -> list[int]:
        return reference.generate(prompt, options).best

    number = recipe.ends
    if own_ends and (recipe.end_bias or recipe.named_options & set(OF_ENDS)):
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
        # A run may begin in the prompt, but must end in what is new.
        before = reference.before(prompt, options)
        tokens = before + output()
        first = max(len(before) + 1, length)
        if len(tokens) < first:
            return None
        end = int(rng.integers(first, len(tokens) + 1))
        banned.append(tokens[end - length : end])
        options["bad_words_token_ids"] = list(banned)
    if recipe.decoys:
        # Half of a run is there, then comes another token; nowhere is there a run as long as this;
        # and a run of an end token alone is not banned.
        random = rng.integers(reference.vocab_size, size=LONGEST_RUN).tolist()
        options["bad_words_token_ids"] += [[output()[0], random[0]], random]
        options["bad_words_token_ids"] += [[end] for end in ends]
    return options


def decoder_prompt(reference: SourceReference, recipe: Recipe, rng: np.random.Generator) -> Options:
    """A decoder's prompt for every third recipe, and those that are to reach the last position."""
    length = 0
    if "forced_bos_token_id" in recipe.tokens:
        return {}  # It is forced after the start alone.
    if recipe.prompt == FULL:
        length = reference.max_length - recipe.max_new_tokens - 1
    elif zlib.crc32(recipe.name.encode()) % 3 == 0:
        length = DECODER_PROMPT
    tokens: list[int] = rng.integers(reference.vocab_size, size=length).tolist()
    return {"decoder_token_ids": tokens} if length else {}


def without(options: Options, name: str) -> Options:
    """``options`` but for that of ``name``, and for those that mean nothing without it."""
    dropped = OF_BEAMS if name == "num_beams" else (name,)
    return {other: value for other, value in options.items() if other not in dropped}


def each_matters(reference: Reference, prompt: list[int], options: Options) -> bool:
    """Whether leaving out any of ``options`` gives other tokens."""
    tokens = reference.generate(prompt, options).token_ids
    for name, value in options.items():
        if name in OF_SIZE or value == DEFAULTS.get(name):
            continue
        if reference.generate(prompt, without(options, name)).token_ids == tokens:
            return False
    return True


def all_differ(reference: Reference, prompt: list[int], variants: list[Options]) -> bool:
    """Whether each of ``variants`` gives other tokens than all before."""
    seen: list[list[list[int]]] = []
    for options in variants:
        tokens = reference.generate(prompt, options).token_ids
        if tokens in seen:
            return False
        seen.append(tokens)
    return True


def is_telling(reference: Reference, recipe: Recipe, case: OptionCase) -> bool:
    """Whether ``case`` has as many and as varied tokens as ``recipe`` requires."""
    best = case.generation.best
    if len(best) < min(MIN_TOKENS, recipe.max_new_tokens):
        return False
    # A penalty below 1 is there to repeat.
    if case.options.get("repetition_penalty", 1.0) >= 1.0 and not is_diverse(best):
        return False
    longest = max(len(tokens) for tokens in case.generation.token_ids)
    before = reference.before(case.prompt, case.options)
    return recipe.prompt != FULL or len(before) + longest == reference.max_length


def cook(reference: Reference, recipe: Recipe, seed: int) -> list[OptionCase]:
    """The cases of ``recipe`` with the first suitable random prompt of this seed."""
    room = reference.max_length - recipe.max_new_tokens
    if isinstance(reference, SourceReference):
        # A source takes nothing from what can be generated.
        room = reference.max_length
    length = room if recipe.prompt == FULL else min(recipe.prompt, room)
    for attempt in range(MAX_ATTEMPTS):
        # Seeded by its name, a case stays the same when others come or go.
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
        if not all(each_matters(reference, prompt, options) for options in variants.values()):
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
            if not is_telling(reference, recipe, case):
                break
            cases.append(case)
        if len(cases) == len(variants):
            return cases
    raise GoldenError(f"no prompt for the recipe {recipe.name!r} in {MAX_ATTEMPTS} attempts")


def recipes_of(reference: Reference, share: slice) -> tuple[Recipe, ...]:
    """The recipes that a checkpoint takes, of which ``share`` is of those that are for all."""
    of_source = SOURCE_RECIPES if isinstance(reference, SourceReference) else ()
    return (*RECIPES[share], *COMMON_RECIPES, *of_source)


def option_cases(
    reference: Reference, seed: int, share: slice, known: Collection[str] = ()
) -> Iterator[OptionCase]:
    """The cases of ``recipes_of`` but those of ``known`` names, without a tokenizer."""
    for recipe in recipes_of(reference, share):
        if {recipe.name + variant for variant in recipe.variants} <= set(known):
            continue
        # Several results that must all differ are rare after a decoder's start; what they tell of
        # beam search, models without an encoder tell, too.
        if len(recipe.variants) == 1 or not isinstance(reference, SourceReference):
            yield from cook(reference, recipe, seed)


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
        yield first_serving_text(reference, tokenizer, name, texts, wanted)


def first_serving_text(
    reference: Reference,
    tokenizer: PreTrainedTokenizerBase,
    name: str,
    texts: tuple[str, ...],
    wanted: Options,
) -> tuple[str, OptionCase]:
    """The first suitable text of ``texts``, with the largest suitable limit."""
    for limit in range(wanted["max_new_tokens"], 0, -1):
        options = wanted | {"max_new_tokens": limit}
        for text in texts:
            prompt: list[int] = tokenizer.encode(text)
            if not each_matters(reference, prompt, options):
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
