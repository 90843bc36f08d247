"""Names of the languages that are spoken."""

from collections.abc import Mapping
from functools import cache


@cache
def language_names() -> Mapping[str, str]:
    """English names in lower case, by code; takes a moment the first time."""
    # Imported late, as with tokenizers.
    from transformers.models.whisper.tokenization_whisper import LANGUAGES

    return dict(LANGUAGES)
