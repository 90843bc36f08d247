"""The spoken language, given by the request or detected by the model."""

import math
from collections.abc import Mapping, Sequence

from shaperouter_service.errors import InvalidRequestError, Violation, shortened
from shaperouter_service.speech.transcription.tokens import TranscriptTokens

# The language of English-only models.
ENGLISH = "en"


def resolve_language(
    given: str, tokens: TranscriptTokens, *, field: str, names: Mapping[str, str]
) -> str:
    """The code of a language.

    Args:
        given: A code or a name, in any case.
        tokens: Special tokens of the requested model.
        field: Path of the field in the request, for errors.
        names: Names of languages by code, in lower case.

    Raises:
        InvalidRequestError: The model does not know the language.
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
    """Detects the language with a multilingual model.

    Args:
        logits: Logits of all ids after the start token.
        tokens: Special tokens of the model.

    Returns:
        Code of the likeliest language, and the probabilities of all, which sum to 1.
    """
    largest = max(logits[token] for token in tokens.languages.values())
    weights = {code: math.exp(logits[token] - largest) for code, token in tokens.languages.items()}
    total = sum(weights.values())
    probabilities = {code: weight / total for code, weight in weights.items()}
    return max(probabilities, key=probabilities.__getitem__), probabilities
