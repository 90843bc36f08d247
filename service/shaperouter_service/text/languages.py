"""Names of spoken languages."""

from collections.abc import Mapping
from functools import cache


@cache
def language_names() -> Mapping[str, str]:
    """English names in lower case, by code. The first call takes a moment."""
    # Imported on first use, like tokenizers.
    from transformers.models.whisper.tokenization_whisper import LANGUAGES

    return dict(LANGUAGES)
