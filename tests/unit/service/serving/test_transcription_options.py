"""Options of a transcription are checked, and every default is filled in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harness.transcripts import TOKENS
from shaperouter.v1 import transcription_pb2
from shaperouter_service.errors import InvalidRequestError
from shaperouter_service.serving.transcription.options import (
    ResolvedTranscription,
    resolve_transcription,
    special_token_violations,
)
from shaperouter_service.speech.transcription import (
    Task,
    Thresholds,
    TranscriptionOptions,
    TranscriptTokens,
)
from shaperouter_service.wire.transcription import transcription_options_from_message

ENGLISH = replace(TOKENS, languages={}, tasks={})
NAMES = {"en": "english", "de": "german"}
TRANSLATE = transcription_pb2.TRANSCRIPTION_TASK_TRANSLATE


def resolve(
    tokens: TranscriptTokens = TOKENS, step_seconds: float | None = None, **options: Any
) -> ResolvedTranscription:
    return resolve_transcription(
        transcription_options_from_message(transcription_pb2.TranscriptionOptions(**options)),
        tokens,
        names=NAMES,
        initial_prompt=[1, 2],
        max_beams=8,
        step_seconds=step_seconds,
    )


def test_defaults_are_those_of_openai_whisper() -> None:
    resolved = resolve(seed=7)
    assert resolved == ResolvedTranscription(
        options=TranscriptionOptions(
            language=None,
            initial_prompt=[1, 2],
            temperatures=(0.0, 0.2, 0.4, 0.6, 0.8, 1.0),
            thresholds=Thresholds(
                compression_ratio=2.4, mean_logprob=-1.0, no_speech_probability=0.6
            ),
        ),
        detects_language=True,
        num_beams=1,
        best_of=5,
        seed=7,
    )


@pytest.mark.parametrize("special", [TOKENS.end, TOKENS.start, TOKENS.first_timestamp + 1])
def test_an_initial_prompt_with_a_special_token_is_refused(special: int) -> None:
    (violation,) = special_token_violations([1, special, 2], TOKENS, lambda token: f"<|{token}|>")
    assert violation.field == "options.initial_prompt"
    assert violation.description == f"must have no special tokens, got <|{special}|>"


def test_an_initial_prompt_of_text_is_no_violation() -> None:
    assert not list(special_token_violations([0, TOKENS.end - 1], TOKENS, str))


def test_what_a_request_says_is_done() -> None:
    resolved = resolve(
        language="German",
        task=TRANSLATE,
        word_timestamps=True,
        timestamps=False,
        condition_on_previous_text=False,
        temperatures=[0.0, 0.5],
        num_beams=4,
        best_of=2,
        compression_ratio_threshold=float("inf"),
        logprob_threshold=-2.0,
        no_speech_threshold=0.0,
        step_seconds=2.5,
    )
    options = resolved.options
    assert (options.language, options.task, resolved.detects_language) == (
        "de",
        Task.TRANSLATE,
        False,
    )
    assert (options.words, options.timestamps) == (True, False)
    assert not options.condition_on_previous_text
    assert options.temperatures == (0.0, 0.5)
    assert options.thresholds == Thresholds(
        compression_ratio=float("inf"), mean_logprob=-2.0, no_speech_probability=0.0
    )
    assert options.step_frames == 250
    assert (resolved.num_beams, resolved.best_of) == (4, 2)


def test_an_english_only_model_needs_to_hear_no_language() -> None:
    assert not resolve(ENGLISH).detects_language
    assert resolve(ENGLISH, language="en").options.language is None


def test_a_seed_is_chosen_if_there_is_none() -> None:
    assert resolve().seed != resolve().seed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_beams": 9}, "options.num_beams: must be from 1 to 8, got 9"),
        ({"best_of": 17}, "options.best_of: must be from 1 to 16, got 17"),
        (
            {"no_speech_threshold": 1.5},
            "options.no_speech_threshold: must be from 0 to 1, got 1.5",
        ),
        (
            {"logprob_threshold": float("nan")},
            "options.logprob_threshold: must be from -inf to 0, got nan",
        ),
        (
            {"compression_ratio_threshold": -1.0},
            "options.compression_ratio_threshold: must be from 0 to inf, got -1",
        ),
        ({"temperatures": [0.0] * 9}, "options.temperatures: must have at most 8 temperatures"),
        (
            {"temperatures": [0.0, 1.5]},
            "options.temperatures[1]: must be from 1e-06 to 1 or 0, got 1.5",
        ),
        (
            {"temperatures": [1e-9]},
            "options.temperatures[0]: must be from 1e-06 to 1 or 0, got 1e-09",
        ),
        (
            {"temperatures": [0.5, 0.2]},
            "options.temperatures[1]: must be from 0.5 to 1 (they ascend), got 0.2",
        ),
        ({"language": "fr"}, "options.language: must be one of de, en, zh, or the name of one"),
        ({"task": 9}, "options.task: must be one of transcribe, translate, got 9"),
        ({"seed": -1}, "options.seed: must be from 0 to 9223372036854775807, got -1"),
        ({"step_seconds": 0.1}, "step_seconds: must be from 0.5 to 30, got 0.1"),
    ],
)
def test_what_is_over_a_limit_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequestError) as raised:
        resolve(**options)
    assert str(raised.value).startswith(message)


def test_an_english_only_model_does_not_translate() -> None:
    with pytest.raises(InvalidRequestError, match="must be transcribe for an English-only model"):
        resolve(ENGLISH, task=TRANSLATE)


def test_all_violations_are_told_at_once() -> None:
    with pytest.raises(InvalidRequestError) as raised:
        resolve(num_beams=0, language="fr", step_seconds=99.0)
    fields = [violation.field for violation in raised.value.violations]
    assert fields == ["options.num_beams", "step_seconds", "options.language"]
