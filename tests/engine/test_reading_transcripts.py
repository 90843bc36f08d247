"""The settings of transcripts are read from a checkpoint, or their problem is named."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.engine import GOLDENS
from shaperouter_service.errors import StartupError
from shaperouter_service.models.config import Config
from shaperouter_service.models.transcripts import Transcripts, read_transcripts
from shaperouter_service.models.whisper import Whisper
from shaperouter_service.speech.transcription import Task


def read(name: str, **changes: Any) -> Transcripts:
    """The settings of a golden checkpoint with changes; None removes a value."""
    directory = GOLDENS / name
    config = json.loads((directory / "config.json").read_text())
    values = json.loads((directory / "generation_config.json").read_text()) | changes
    family = Whisper.from_config(Config(directory / "config.json", config))
    checkpoint: Any = SimpleNamespace(directory=Path("m"), config=config, generation_config=values)
    return read_transcripts(checkpoint, family)


def test_a_multilingual_checkpoint() -> None:
    settings = read("whisper-uneven").settings
    tokens = settings.tokens
    assert (tokens.end, tokens.start, tokens.previous) == (90, 91, 100)
    assert (tokens.no_speech, tokens.no_timestamps) == (101, 102)
    assert tokens.languages == {f"l{index}": 92 + index for index in range(5)}
    assert tokens.tasks == {Task.TRANSLATE: 97, Task.TRANSCRIBE: 98}
    assert settings.begin_suppressed == [3, 90]
    assert settings.last_initial_timestamp == 113
    assert (settings.mel_bands, settings.window_frames) == (80, 60)


def test_an_english_only_checkpoint_has_no_languages() -> None:
    tokens = read("whisper-english").settings.tokens
    assert not tokens.is_multilingual
    assert not tokens.tasks


def test_missing_values_are_those_of_openai_whisper() -> None:
    transcripts = read(
        "whisper-uneven",
        alignment_heads=None,
        prev_sot_token_id=None,
        max_initial_timestamp_index=None,
        suppress_tokens=None,
    )
    assert transcripts.alignment_heads == [(layer, head) for layer in (1, 2) for head in range(4)]
    assert transcripts.settings.tokens.previous == 100
    # A second, but the vocabulary ends before.
    assert transcripts.settings.last_initial_timestamp == 133
    assert transcripts.settings.suppressed == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"no_timestamps_token_id": None}, "must have no_timestamps_token_id"),
        ({"no_timestamps_token_id": 133}, "no_timestamps_token_id must be from 3 to 132, got 133"),
        ({"alignment_heads": [[3, 0]]}, "alignment_heads must have pairs of a layer below 3"),
        ({"alignment_heads": []}, "alignment_heads must have pairs"),
        ({"lang_to_id": {"en": 92}}, "lang_to_id must have names such as <|en|>, got 'en'"),
        ({"lang_to_id": {"<|en|>": 134}}, "lang_to_id must have ids from 0 to 133, got 134"),
        ({"task_to_id": {"translate": 97}}, "task_to_id must have transcribe, translate, got"),
        ({"suppress_tokens": [1] * 257}, "suppress_tokens must be a list of at most 256 ids"),
        ({"begin_suppress_tokens": [-1]}, "begin_suppress_tokens must have ids from 0 to 133"),
    ],
)
def test_unusable_values_are_refused_by_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(StartupError, match=message):
        read("whisper-uneven", **changes)
