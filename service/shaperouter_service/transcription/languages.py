"""Which language is spoken: as a request says, or as the model hears."""

import math
from collections.abc import Mapping, Sequence

from shaperouter_service.errors import InvalidRequestError, Violation, shortened
from shaperouter_service.transcription.tokens import TranscriptTokens

# What an English-only model transcribes.
ENGLISH = "en"


def resolve_language(
    given: str, tokens: TranscriptTokens, *, field: str, names: Mapping[str, str]
) -> str:
    """The code of a language.

    Args:
        given: A code or a name, in any case.
        tokens: Of the model that is asked.
        field: Path of the field in the request, for errors.
        names: Of languages, by code, in lower case.

    Raises:
        InvalidRequestError: The model does not know it.
    """
    word = given.lower()
    known = tokens.languages if tokens.is_multilingual else {ENGLISH: tokens.start}
    codes = {name: code for code, name in names.items()}
    code = word if word in known else codes.get(word)
    if code not in known:
        raise InvalidRequestError(
            Violation(
                field=field,
                description=f"must be one of {', '.join(sorted(known))}, or the name of one, got "
                f"{shortened(given, 64)!r}",
            )
        )
    return str(code)


def likeliest_language(
    logits: Sequence[float], tokens: TranscriptTokens
) -> tuple[str, Mapping[str, float]]:
    """What a multilingual model hears.

    Args:
        logits: After the start token, of all ids.
        tokens: Of the model.

    Returns:
        The likeliest language's code, and the probabilities of all, which sum to 1.
    """
    largest = max(logits[token] for token in tokens.languages.values())
    weights = {code: math.exp(logits[token] - largest) for code, token in tokens.languages.items()}
    total = sum(weights.values())
    probabilities = {code: weight / total for code, weight in weights.items()}
    return max(probabilities, key=probabilities.__getitem__), probabilities
