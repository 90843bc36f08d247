"""A request names its language by code or by name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.transcripts import TOKENS
from shaperouter_service.errors import InvalidRequestError
from shaperouter_service.speech.transcription import Task, resolve_language

NAMES = {"en": "english", "de": "german", "fr": "french"}


@pytest.mark.parametrize("given", ["de", "DE", "German", "german"])
def test_a_language_is_named_by_code_or_by_name(given: str) -> None:
    assert resolve_language(given, TOKENS, field="language", names=NAMES) == "de"


@pytest.mark.parametrize("given", ["fr", "French", "klingon", ""])
def test_a_language_that_the_model_does_not_know_is_refused(given: str) -> None:
    with pytest.raises(InvalidRequestError) as raised:
        resolve_language(given, TOKENS, field="language", names=NAMES)
    assert str(raised.value) == (
        f"language: must be one of de, en, zh, or the name of one, got {given!r}"
    )


def test_an_english_only_model_knows_only_english() -> None:
    english = replace(TOKENS, languages={}, tasks={})
    assert resolve_language("English", english, field="language", names=NAMES) == "en"
    with pytest.raises(InvalidRequestError, match="must be one of en, "):
        resolve_language("de", english, field="language", names=NAMES)


def test_only_a_multilingual_model_gets_a_language_and_a_task() -> None:
    expected = [TOKENS.start, TOKENS.languages["de"], TOKENS.tasks[Task.TRANSLATE]]
    assert TOKENS.start_sequence("de", Task.TRANSLATE) == expected
    english = replace(TOKENS, languages={}, tasks={})
    assert english.start_sequence(None, Task.TRANSCRIBE) == [TOKENS.start]
