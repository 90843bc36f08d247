"""Spoken languages, by code and by name."""

from collections.abc import Mapping
from functools import cache

from shaperouter_service.errors import InvalidRequestError, shortened
from shaperouter_service.speech.transcription.tokens import TranscriptTokens

# The language of English-only models.
ENGLISH = "en"


@cache
def language_names() -> Mapping[str, str]:
    """English names in lower case, by code. The first call takes a moment."""
    # Imported on first use, because only requests that name a language need it.
    from transformers.models.whisper.tokenization_whisper import LANGUAGES

    return dict(LANGUAGES)


def resolve_language(
    given: str, tokens: TranscriptTokens, *, field: str, names: Mapping[str, str]
) -> str:
    """Returns the code of a language that a request names.

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
        raise InvalidRequestError.of(
            field,
            f"must be one of {', '.join(sorted(known))}, or the name of one, got "
            f"{shortened(given, 64)!r}",
        )
    return str(code)
