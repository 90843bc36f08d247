"""The languages of a tokenizer that is made for translation."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

# NLLB's codes, such as `eng_Latn`. Its tokenizer does not distinguish them from other special
# tokens.
_NLLB_CODE = re.compile(r"[a-z]{3}_[A-Z][a-z]{3}")
_NLLB = "NllbTokenizer"
# Marian puts the target language before the source, as in `>>fra<< Hello`.
_IN_TEXT = re.compile(r">>(.+)<<")
# mBART's decoders start with the target language, which its checkpoints choose.
_STARTS_WITH_TARGET = "MBartTokenizer"


@dataclass(frozen=True, kw_only=True)
class Languages:
    """A tokenizer's handling of languages, by their codes.

    Attributes:
        sources: Special tokens before and after a source in a language.
        targets: The token that begins a target in a language.
        prefixes: What begins the text of a source that is to be translated to a language.
    """

    sources: Mapping[str, tuple[Sequence[int], Sequence[int]]]
    targets: Mapping[str, int]
    prefixes: Mapping[str, str]

    @classmethod
    def of(cls, tokenizer: Any) -> Self:
        """Finds the languages of a tokenizer of Transformers; most have none."""
        kind = type(tokenizer).__name__
        in_text = map(_IN_TEXT.fullmatch, getattr(tokenizer, "supported_language_codes", ()))
        prefixes = {code[1]: f"{code[0]} " for code in in_text if code}
        tokens: Mapping[str, int] = getattr(tokenizer, "lang_code_to_id", {})
        if kind == _NLLB:
            special = filter(_NLLB_CODE.fullmatch, tokenizer.all_special_tokens)
            tokens = {code: tokenizer.convert_tokens_to_ids(code) for code in special}
        return cls(
            sources=_affixes(tokenizer, tokens),
            targets={} if kind == _STARTS_WITH_TARGET else dict(tokens),
            prefixes=prefixes,
        )

    @property
    def target_codes(self) -> Sequence[str]:
        """All target languages."""
        return [*self.targets, *self.prefixes]


def _affixes(
    tokenizer: Any, codes: Mapping[str, int]
) -> Mapping[str, tuple[Sequence[int], Sequence[int]]]:
    """The special tokens around a source in each language.

    The tokenizer itself has one source language at a time, and is shared by all requests.
    """
    if not codes:
        return {}
    default = tokenizer.src_lang
    affixes = {}
    for code in codes:
        tokenizer.src_lang = code
        affixes[code] = (tuple(tokenizer.prefix_tokens), tuple(tokenizer.suffix_tokens))
    tokenizer.src_lang = default
    return affixes
