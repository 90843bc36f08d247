"""Options of a transcription: validation and defaults."""

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shaperouter_service.errors import InvalidRequestError, Violation
from shaperouter_service.generation import limits
from shaperouter_service.generation.option import INT64_MAX, shown
from shaperouter_service.generation.resolution import SEED_BITS
from shaperouter_service.generation.text_validation import TokenLimit, text_violations
from shaperouter_service.routing.served_model import ServedModel
from shaperouter_service.speech.transcription import (
    Task,
    Thresholds,
    TranscriptionOptions,
    TranscriptSettings,
    TranscriptTokens,
    resolve_language,
)
from shaperouter_service.speech.transcription.segments import FRAMES_PER_SECOND

# Transcripts to sample at a temperature above 0, as in openai/whisper.
BEST_OF = 5


@dataclass(frozen=True, kw_only=True)
class ResolvedTranscription:
    """A request's options with every default resolved.

    Attributes:
        options: How to transcribe. The language is None also to detect it.
        detects_language: Whether to detect the language.
        num_beams: Hypotheses of beam search at temperature 0.
        best_of: Transcripts to sample at a temperature above 0.
        seed: Seed of the random numbers.
    """

    options: TranscriptionOptions
    detects_language: bool
    num_beams: int
    best_of: int
    seed: int


@dataclass(frozen=True, kw_only=True)
class Transcribing:
    """Values that all runs of a transcription share.

    Attributes:
        request_id: Id of the request.
        client: The client.
        model: Name of the model.
        settings: The model's transcript settings.
        max_length: Maximum tokens of a run, including the prompt.
        resolved: How to transcribe.
        decode: Converts tokens to text.
        deadline: Deadline on the monotonic clock, in seconds.
    """

    request_id: str
    client: str
    model: str
    settings: TranscriptSettings
    max_length: int
    resolved: ResolvedTranscription
    decode: Callable[[Sequence[int]], str]
    deadline: float | None


def initial_prompt_violations(model: ServedModel, prompt: str) -> Iterator[Violation]:
    """Checks that an initial prompt is not too long to be tokenized."""
    limit = TokenLimit(model.max_length, f"max_length of {model.name}")
    yield from text_violations(model, "options.initial_prompt", prompt, limit)


def special_token_violations(
    initial_prompt: Sequence[int], tokens: TranscriptTokens, token_text: Callable[[int], str]
) -> Iterator[Violation]:
    """Checks that an initial prompt is only text, as openai/whisper does.

    Args:
        initial_prompt: Its tokens.
        tokens: Special tokens of the model.
        token_text: Gives the text of a token.
    """
    for token in initial_prompt:
        text = token_text(token) if token >= tokens.end else ""
        if text.startswith("<|") and text.endswith("|>"):
            description = f"must have no special tokens, got {text}"
            yield Violation(field="options.initial_prompt", description=description)
            return


def resolve_transcription(
    options: Mapping[str, Any],
    tokens: TranscriptTokens,
    *,
    names: Mapping[str, str],
    initial_prompt: Sequence[int],
    max_beams: int,
    step_seconds: float | None,
    violations: Sequence[Violation] = (),
) -> ResolvedTranscription:
    """Validates options and fills in every default.

    Args:
        options: The request's options, by name.
        tokens: Special tokens of the model.
        names: Names of languages, by code.
        initial_prompt: Tokens of the options' initial_prompt.
        max_beams: The model's largest beam width.
        step_seconds: Step of a stream; None for whole windows.
        violations: Violations of the initial prompt.

    Raises:
        InvalidRequestError: The options are invalid; contains all violations.
    """
    violations = [
        *violations,
        *_number_violations(options, max_beams),
        *_temperature_violations(options.get("temperatures", ())),
        *_task_violations(options.get("task", Task.TRANSCRIBE), tokens),
        *_step_violations(step_seconds),
    ]
    language = None
    if "language" in options:
        try:
            language = resolve_language(
                options["language"], tokens, field="options.language", names=names
            )
        except InvalidRequestError as error:
            violations += error.violations
    if violations:
        raise InvalidRequestError(*violations)

    defaults = TranscriptionOptions(language=None)
    limit, value = defaults.thresholds, options.get
    return ResolvedTranscription(
        options=TranscriptionOptions(
            language=language if tokens.is_multilingual else None,
            task=value("task", Task.TRANSCRIBE),
            timestamps=value("timestamps", True),
            words=value("word_timestamps", False),
            initial_prompt=initial_prompt,
            condition_on_previous_text=value("condition_on_previous_text", True),
            temperatures=value("temperatures", defaults.temperatures),
            thresholds=Thresholds(
                compression_ratio=value("compression_ratio_threshold", limit.compression_ratio),
                mean_logprob=value("logprob_threshold", limit.mean_logprob),
                no_speech_probability=value("no_speech_threshold", limit.no_speech_probability),
            ),
            step_frames=None if step_seconds is None else round(step_seconds * FRAMES_PER_SECOND),
        ),
        detects_language=tokens.is_multilingual and language is None,
        num_beams=value("num_beams", 1),
        best_of=value("best_of", BEST_OF),
        seed=value("seed", secrets.randbits(SEED_BITS)),
    )


def _number_violations(options: Mapping[str, Any], max_beams: int) -> Iterator[Violation]:
    ranges: dict[str, tuple[float, float]] = {
        "num_beams": (1, max_beams),
        "best_of": (1, limits.MAX_RETURN_SEQUENCES),
        "compression_ratio_threshold": (0.0, float("inf")),
        "logprob_threshold": (-float("inf"), 0.0),
        "no_speech_threshold": (0.0, 1.0),
        "seed": (0, INT64_MAX),
    }
    for name, (low, high) in ranges.items():
        value = options.get(name)
        # Not `value < low`: NaN must not pass, and no comparison with it is true.
        if value is not None and not low <= value <= high:
            rule = f"must be from {shown(low)} to {shown(high)}"
            yield Violation(field=f"options.{name}", description=f"{rule}, got {shown(value)}")


def _temperature_violations(temperatures: Sequence[float]) -> Iterator[Violation]:
    field, maximum = "options.temperatures", limits.MAX_TEMPERATURES
    if len(temperatures) > maximum:
        description = f"must have at most {maximum} temperatures, got {len(temperatures)}"
        yield Violation(field=field, description=description)
        return
    highest = limits.MAX_TRANSCRIPTION_TEMPERATURE
    previous = 0.0
    for index, temperature in enumerate(temperatures):
        lowest = max(previous, limits.MIN_TEMPERATURE)
        if temperature != previous and not lowest <= temperature <= highest:
            after = " (they ascend)" if previous else " or 0"
            description = f"must be from {lowest:g} to {highest:g}{after}, got {temperature:g}"
            yield Violation(field=f"{field}[{index}]", description=description)
            return
        previous = temperature


def _task_violations(task: Task | int, tokens: TranscriptTokens) -> Iterator[Violation]:
    if not isinstance(task, Task):
        description = f"must be one of {', '.join(Task)}, got {task}"
        yield Violation(field="options.task", description=description)
    elif task is Task.TRANSLATE and not tokens.is_multilingual:
        description = "must be transcribe for an English-only model, got translate"
        yield Violation(field="options.task", description=description)


def _step_violations(step_seconds: float | None) -> Iterator[Violation]:
    low, high = limits.MIN_STEP_SECONDS, limits.MAX_STEP_SECONDS
    if step_seconds is not None and not low <= step_seconds <= high:
        description = f"must be from {low:g} to {high:g}, got {step_seconds:g}"
        yield Violation(field="step_seconds", description=description)
