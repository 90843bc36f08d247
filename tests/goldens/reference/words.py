"""Cases of single words, for a model with an encoder and a tokenizer."""

from __future__ import annotations

from collections.abc import Iterator

from transformers import PreTrainedTokenizerBase

from .greedy import safe_text_continuation
from .model import Continuation, GoldenError, Reference, safely
from .options import OptionCase
from .recipes import beams

WORDS = (
    "tensorflow", "shaperouter", "a", "Kubernetes", "grapheme", "through", "colonel", "o'clock",
    "pneumonia", "xylophone", "antidisestablishmentarianism", "naïve", "gr8",
)  # fmt: skip
# More than the phonemes of any word, so that the end token ends each case.
MAX_NEW_TOKENS = 40
SEARCHES = {
    "beams-4": beams(4, num_return_sequences=3, max_new_tokens=MAX_NEW_TOKENS),
    "beams-8": beams(8, num_return_sequences=2, max_new_tokens=MAX_NEW_TOKENS),
}


def word_cases(
    reference: Reference, tokenizer: PreTrainedTokenizerBase
) -> Iterator[tuple[str, str, Continuation]]:
    """Name, word and greedy continuation of each word."""
    for word in WORDS:
        case = safe_text_continuation(reference, tokenizer.encode(word), MAX_NEW_TOKENS)
        if case is None:
            raise GoldenError(f"{word!r} has no safe continuation")
        yield word, word, case


def word_option_cases(
    reference: Reference, tokenizer: PreTrainedTokenizerBase
) -> Iterator[tuple[str, OptionCase]]:
    """Word and hypotheses of each search, of the words whose searches rounding cannot change."""
    for name, options in SEARCHES.items():
        found = 0
        for word in WORDS:
            prompt: list[int] = tokenizer.encode(word)
            result = safely(reference, prompt, options)
            if result is None:
                continue
            found += 1
            yield (
                word,
                OptionCase(
                    name=f"{name}-{word}",
                    prompt=prompt,
                    options=options,
                    generation=result[0],
                    margin=result[1],
                ),
            )
        if found < len(WORDS) // 2:
            raise GoldenError(f"{name}: only {found} of {len(WORDS)} words are safe")
